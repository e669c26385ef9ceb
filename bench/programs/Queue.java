import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.atomic.LongAdder;

/** Threads that hand each other work through a bounded queue: Queue THREADS SECONDS. Who waits is parked on a mutex. */
public class Queue {
    public static void main(String[] arguments) throws InterruptedException {
        int threads = Integer.parseInt(arguments[0]);
        long seconds = Long.parseLong(arguments[1]), end = System.nanoTime() + seconds * 1_000_000_000L;
        var work = new ArrayBlockingQueue<Long>(64);
        var done = new LongAdder();
        var everybody = new Thread[2 * threads];
        for (int i = 0; i < threads; i++) {
            everybody[i] = new Thread(() -> {
                try {
                    while (System.nanoTime() < end) work.put(1L);
                    work.put(0L);
                } catch (InterruptedException e) {
                    System.exit(1);
                }
            });
            everybody[threads + i] = new Thread(() -> {
                try {
                    while (work.take() != 0) done.increment();
                } catch (InterruptedException e) {
                    System.exit(1);
                }
            });
        }
        for (var thread : everybody) thread.start();
        for (var thread : everybody) thread.join();
        System.out.println(done.sum() / seconds + " ops/s");
    }
}
