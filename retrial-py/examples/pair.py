"""What a get and a release cost beside Python's own locks: one thread alone, then 8 processes at one mutex.

Rounds in turn, medians. python3 pair.py [ROUNDS] [MILLISECONDS OF A CONTENDED ROUND]
"""

import multiprocessing
import statistics
import sys
import threading
import time
import timeit

import retrial

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 21
SECONDS = (int(sys.argv[2]) if len(sys.argv) > 2 else 500) / 1000
PAIRS = 20_000
PROCESSES = 8

instance = retrial.Instance.anonymous()
mutex = instance.mutex("pair", format="q")
shared = mutex.shared()
thread_lock = threading.Lock()
process_lock = multiprocessing.get_context("fork").Lock()

ALONE = [
    ("threading.Lock, with", "with lock: pass", thread_lock),
    ("threading.Lock, acquire and release", "acquire(); release()", thread_lock),
    ("retrial, with mutex", "with lock: pass", mutex),
    ("retrial, acquire and release", "acquire(); release()", mutex),
    ("retrial, a hold of S used again", "with lock: pass", shared),
    ("retrial, with mutex.exclusive(at=…)", "with lock.exclusive(at='pair'): pass", mutex),
    ("multiprocessing.Lock, with", "with lock: pass", process_lock),
]


def alone():
    """ns of a pair, by the rows above."""
    times = [[] for _ in ALONE]
    for _ in range(ROUNDS):
        for row, (_, statement, lock) in zip(times, ALONE):
            names = {"lock": lock}
            if statement.startswith("acquire"):
                names.update(acquire=lock.acquire, release=lock.release)
            row.append(timeit.timeit(statement, globals=names, number=PAIRS) / PAIRS * 1e9)
    return [statistics.median(row) for row in times]


def work(lock, number, begin, counts):
    begin.wait()
    end = time.monotonic() + SECONDS
    done = 0
    while time.monotonic() < end:
        for _ in range(20):
            with lock:
                done += 1
    counts[number] = done


def contended(lock):
    """Pairs per second of all processes together."""
    context = multiprocessing.get_context("fork")
    begin, counts = context.Barrier(PROCESSES), context.Array("q", PROCESSES, lock=False)
    workers = [context.Process(target=work, args=(lock, n, begin, counts)) for n in range(PROCESSES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / SECONDS


def main():
    times = alone()
    base = times[0]
    for (name, _, _), ns in zip(ALONE, times):
        print(f"{name:40} {ns:8.1f} ns  {ns / base:6.2f}")
    ours, theirs = [], []
    for _ in range(max(1, ROUNDS // 3)):
        theirs.append(contended(process_lock))
        ours.append(contended(mutex))
    base, found = statistics.median(theirs), statistics.median(ours)
    print(f"{PROCESSES} processes, gets per second")
    print(f"{'multiprocessing.Lock':40} {base:8.0f}     {1:6.2f}")
    print(f"{'retrial, with mutex':40} {found:8.0f}     {found / base:6.2f}")


if __name__ == "__main__":
    main()
