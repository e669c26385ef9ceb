"""Threads that hand each other work through a bounded queue: queue.py THREADS SECONDS. The interpreter's lock is a mutex."""

import queue
import sys
import threading
import time

threads, seconds = int(sys.argv[1]), float(sys.argv[2])
work = queue.Queue(maxsize=64)
end = time.monotonic() + seconds
done = [0] * threads


def produce():
    while time.monotonic() < end:
        work.put(1)
    work.put(None)


def consume(number):
    while work.get() is not None:
        done[number] += 1


everybody = [threading.Thread(target=produce) for _ in range(threads)]
everybody += [threading.Thread(target=consume, args=(i,)) for i in range(threads)]
for thread in everybody:
    thread.start()
for thread in everybody:
    thread.join()
print(f"{sum(done) / seconds:.0f} ops/s")
