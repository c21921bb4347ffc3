// The session cache of the JDK, measured as benches/session_cache of cardea-cache is: the same operations, keys of 32
// random bytes, entries, lifetimes and shares of expired ones. See README.md.

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CyclicBarrier;
import sun.security.util.Cache;

public final class SessionCacheBench {
    private static final int LIFETIME_SECONDS = 86_400;
    private static final int ROUNDS = 7;
    private static final int WARM_UP_ROUNDS = 3;
    private static final int HOT = 512;
    private static final long STEP = 2_654_435_761L;

    /** As sun.security.ssl.SessionId, whose hash is that of its bytes. */
    private record Key(byte[] bytes) {
        @Override public int hashCode() { return Arrays.hashCode(bytes); }
        @Override public boolean equals(Object other) {
            return other instanceof Key key && Arrays.equals(bytes, key.bytes);
        }

        static Key of(long number) {
            byte[] bytes = new byte[32];
            for (int part = 0; part < 4; part++) {
                long mixed = (number * 4 + part) * 0x9e3779b97f4a7c15L;
                mixed = (mixed ^ (mixed >>> 30)) * 0xbf58476d1ce4e5b9L;
                mixed = (mixed ^ (mixed >>> 27)) * 0x94d049bb133111ebL;
                for (int at = 0; at < 8; at++) bytes[part * 8 + at] = (byte) (mixed >>> (8 * at));
            }
            return new Key(bytes);
        }
    }

    private enum Operation { GET, PUT, REMOVE }

    private record Case(Operation operation, int entries, boolean expires, int expired, int range, int threads) {
        boolean usesUp() { return expired > 0 || operation == Operation.REMOVE; }
    }

    /** What operations that have a result give it to, so that none is optimised away. */
    private static volatile Object sink;

    public static void main(String[] arguments) throws Exception {
        int[] sizes = arguments.length > 0
            ? Arrays.stream(arguments[0].split(",")).mapToInt(Integer::parseInt).toArray()
            : new int[] {20_480, 204_800};
        for (int entries : sizes) {
            for (Operation operation : Operation.values()) {
                String name = "session-cache-" + operation.name().toLowerCase(Locale.ROOT) + "-" + entries;
                report(name + "-ttl", new Case(operation, entries, true, 0, entries, 1));
                report(name + "-unlimited", new Case(operation, entries, false, 0, entries, 1));
                for (int whole : new int[] {10, 4, 3, 2}) {
                    Case some = new Case(operation, entries, true, entries / whole, entries, 1);
                    report(name + "-ttl-expired-1-" + whole, some);
                }
                int processors = Runtime.getRuntime().availableProcessors();
                for (int threads : processors > 2 ? new int[] {2, processors} : new int[] {2}) {
                    report(name + "-ttl-t" + threads, new Case(operation, entries, true, 0, entries, threads));
                }
                if (operation == Operation.GET) {
                    for (int threads : processors > 2 ? new int[] {1, 2, processors} : new int[] {1, 2}) {
                        report(name + "-ttl-hot-t" + threads, new Case(operation, entries, true, 0, HOT, threads));
                    }
                }
            }
        }
    }

    private static void report(String name, Case which) throws Exception {
        // To let entries expire takes a second each time, and then all has been compiled.
        double[] rounds = new double[which.expired > 0 ? 3 : ROUNDS];
        for (int round = which.expired > 0 ? 0 : -WARM_UP_ROUNDS; round < rounds.length; round++) {
            double nanos = round(which);
            if (round >= 0) rounds[round] = nanos;
        }
        Arrays.sort(rounds);
        System.out.printf(Locale.ROOT, "%s/jdk %.1f ns (%.1f-%.1f)%n", name, rounds[rounds.length / 2], rounds[0],
            rounds[rounds.length - 1]);
    }

    /** Nanoseconds of one thread per operation. */
    private static double round(Case which) throws Exception {
        int operations = which.usesUp() ? which.range : Math.max(which.range, 1_000_000);
        Cache<Key, Integer> cache = fill(which);
        // Keys as they come from the network: not the objects that the cache holds.
        int distinct = which.operation == Operation.PUT ? operations : which.range;
        Key[] keys = new Key[distinct];
        long first = which.operation == Operation.PUT ? which.entries : 0;
        for (int number = 0; number < distinct; number++) {
            long place = which.operation == Operation.PUT ? number : number * (STEP % distinct) % distinct;
            keys[number] = Key.of(first + place);
        }
        int part = operations / which.threads;
        CyclicBarrier ready = new CyclicBarrier(which.threads + 1);
        List<Thread> threads = new ArrayList<>();
        for (int thread = 0; thread < which.threads; thread++) {
            int from = thread * part;
            Thread worker = new Thread(() -> {
                try {
                    ready.await();
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
                operate(cache, which.operation, keys, from, part);
            });
            worker.start();
            threads.add(worker);
        }
        System.gc();
        long start = System.nanoTime();
        ready.await();
        for (Thread thread : threads) thread.join();
        return (double) (System.nanoTime() - start) / part;
    }

    private static void operate(Cache<Key, Integer> cache, Operation operation, Key[] keys, int from, int count) {
        Object found = null;
        int at = from % keys.length;
        for (int number = 0; number < count; number++) {
            Key key = keys[at];
            at = at + 1 == keys.length ? 0 : at + 1;
            switch (operation) {
                case GET -> found = cache.get(key);
                case PUT -> cache.put(key, number);
                case REMOVE -> cache.remove(key);
            }
        }
        sink = found;
    }

    private static Cache<Key, Integer> fill(Case which) throws Exception {
        // Soft references are what the session cache of TLS uses, as the JDK configures it.
        Cache<Key, Integer> cache = Cache.newSoftMemoryCache(which.entries, which.expires ? LIFETIME_SECONDS : 0);
        for (int number = 0; number < which.expired; number++) cache.put(Key.of(number), number);
        if (which.expired > 0) {
            // The cache asks the system for the time, in seconds: what is there expires within a moment.
            cache.setTimeout(1);
            Thread.sleep(1_010);
            cache.setTimeout(LIFETIME_SECONDS);
        }
        for (int number = which.expired; number < which.entries; number++) cache.put(Key.of(number), number);
        return cache;
    }
}
