// The session cache of the JDK, measured as benches/session_cache of cardea-cache is: the same operations, keys of 32
// random bytes, entries, lifetimes, shares of expired ones, samples, and arguments. See README.md.

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicInteger;
import sun.security.util.Cache;

public final class SessionCacheBench {
    private static final int LIFETIME_SECONDS = 86_400;
    private static final int HOT = 512;
    private static final long STEP = 2_654_435_761L;
    private static final int[] EXPIRED = {10, 4, 3, 2};
    /** Until the compiler has seen all. */
    private static final int WARM_UP_SAMPLES = 40;

    /** As sun.security.ssl.SessionId, whose hash is that of its bytes. */
    private record Key(byte[] bytes) {
        @Override public int hashCode() { return Arrays.hashCode(bytes); }
        @Override public boolean equals(Object other) {
            return other instanceof Key key && Arrays.equals(bytes, key.bytes);
        }

        static Key of(long number) {
            byte[] bytes = new byte[32];
            for (int part = 0; part < 4; part++) {
                long random = random(number * 4 + part);
                for (int at = 0; at < 8; at++) bytes[part * 8 + at] = (byte) (random >>> (8 * at));
            }
            return new Key(bytes);
        }
    }

    private enum Kind { GET, REMOVE, PUT }

    private record Size(int entries, int operations, int samples, int fills) { }

    /** Nanoseconds per operation, of each sample. */
    private interface Measurement { double[] measure() throws Exception; }

    /** What operations that have a result give it to, so that none is optimised away. */
    private static volatile Object sink;

    private static boolean list;
    private static boolean large;
    private static int rounds = 3;
    private static final List<String> names = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        for (int at = 0; at < arguments.length; at++) {
            switch (arguments[at]) {
                case "--list" -> list = true;
                case "--large" -> large = true;
                case "--rounds" -> rounds = Integer.parseInt(arguments[++at]);
                default -> {
                    // What other benches know as well.
                    if (!arguments[at].startsWith("--")) names.add(arguments[at]);
                }
            }
        }
        if (!list) warmUp();
        for (int entries : large ? new int[] {5_120_000, 20_000_000} : new int[] {20_480, 204_800}) {
            all(large ? new Size(entries, 200_000, rounds, 1) : new Size(entries, 50_000, 7, 3));
        }
    }

    private static void warmUp() throws Exception {
        Size size = new Size(20_480, 20_000, WARM_UP_SAMPLES, 1);
        for (boolean expires : new boolean[] {true, false}) {
            Chain chain = new Chain(size, expires);
            for (Kind kind : Kind.values()) {
                chain.spread(kind, 1);
                chain.spread(kind, 2);
            }
        }
    }

    private static void all(Size size) throws Exception {
        Chain chain = new Chain(size, true);
        int processors = Runtime.getRuntime().availableProcessors();
        int[] several = processors > 2 ? new int[] {2, processors} : new int[] {2};
        for (Kind kind : Kind.values()) {
            row(name(kind, size, "ttl"), () -> chain.spread(kind, 1));
            for (int threads : several) row(name(kind, size, "ttl-t" + threads), () -> chain.spread(kind, threads));
            if (kind == Kind.GET) {
                row(name(kind, size, "ttl-hot-t1"), () -> chain.hot(1));
                for (int threads : several) row(name(kind, size, "ttl-hot-t" + threads), () -> chain.hot(threads));
            }
        }
        chain.cache = null;
        Chain unlimited = new Chain(size, false);
        for (Kind kind : Kind.values()) row(name(kind, size, "unlimited"), () -> unlimited.spread(kind, 1));
        unlimited.cache = null;
        Expired expired = new Expired(size);
        for (int share = 0; share < EXPIRED.length; share++) {
            for (Kind kind : Kind.values()) {
                int at = share;
                row(name(kind, size, "ttl-expired-1-" + EXPIRED[at]), () -> expired.of(at, kind));
            }
        }
    }

    private static String name(Kind kind, Size size, String what) {
        String prefix = large ? "session-cache-large-" : "session-cache-";
        return prefix + kind.name().toLowerCase(Locale.ROOT) + "-" + size.entries + "-" + what + "/jdk";
    }

    private static void row(String name, Measurement measurement) throws Exception {
        if (!names.isEmpty() && !names.contains(name)) return;
        if (list) {
            System.out.println(name + ": figure");
            return;
        }
        double[] samples = measurement.measure();
        if (!large) {
            Arrays.sort(samples);
            samples = new double[] {samples[samples.length / 2]};
        }
        for (double sample : samples) System.out.printf(Locale.ROOT, "%s %.2f ns%n", name, sample);
    }

    /** A full cache that goes from one measurement to the next. */
    private static final class Chain {
        private final Size size;
        private final boolean expires;
        private Cache<Key, Integer> cache;
        private long put;

        Chain(Size size, boolean expires) {
            this.size = size;
            this.expires = expires;
        }

        double[] spread(Kind kind, int threads) throws Exception {
            double[] samples = new double[size.samples];
            for (int sample = -1; sample < size.samples; sample++) {
                double nanos = sample(kind, threads, sample + 1);
                if (sample >= 0) samples[sample] = nanos;
            }
            return samples;
        }

        double[] hot(int threads) throws Exception {
            fill();
            Key[][] keys = new Key[threads][size.operations];
            for (int thread = 0; thread < threads; thread++) {
                for (int at = 0; at < size.operations; at++) {
                    keys[thread][at] = Key.of(Long.remainderUnsigned(random((long) thread << 40 | at), HOT));
                }
            }
            double[] samples = new double[size.samples];
            for (int sample = -1; sample < size.samples; sample++) {
                double nanos = run(cache, Kind.GET, keys);
                if (sample >= 0) samples[sample] = nanos;
            }
            return samples;
        }

        private double sample(Kind kind, int threads, long sample) throws Exception {
            fill();
            // A part of the entries, so that all operations of a sample find what is as full.
            int operations = kind == Kind.REMOVE ? Math.min(size.operations, size.entries / 8) : size.operations;
            // Keys as they come from the network: not the objects that the cache holds.
            Key[][] keys = new Key[threads][operations];
            for (int thread = 0; thread < threads; thread++) {
                for (int at = 0; at < operations; at++) {
                    long number = (long) thread * operations + at;
                    keys[thread][at] = Key.of(switch (kind) {
                        case GET ->
                            Long.remainderUnsigned(random(sample << 50 | (long) thread << 40 | at), size.entries);
                        case REMOVE -> nth(number, size.entries);
                        case PUT -> size.entries + put + number;
                    });
                }
            }
            double nanos = run(cache, kind, keys);
            if (kind == Kind.PUT) put += (long) threads * operations;
            if (kind == Kind.REMOVE) {
                for (Key[] some : keys) for (Key key : some) cache.put(key, 0);
            }
            return nanos;
        }

        private void fill() {
            if (cache != null) return;
            // Of what was measured before, nothing is left to be moved.
            System.gc();
            cache = cache(size, expires);
            for (int number = 0; number < size.entries; number++) cache.put(Key.of(number), number);
            System.gc();
        }
    }

    /** Caches of which a share of the entries has expired: the oldest. */
    private static final class Expired {
        private final Size size;
        /** By share and kind. */
        private final double[][][] samples = new double[EXPIRED.length][][];

        Expired(Size size) { this.size = size; }

        double[] of(int share, Kind kind) throws Exception {
            if (samples[share] == null) {
                if (size.fills == 1) measure(share, share + 1); else measure(0, EXPIRED.length);
            }
            return samples[share][kind.ordinal()];
        }

        /** Shares of small caches at once, since each time that entries have to expire takes a second. */
        private void measure(int from, int to) throws Exception {
            System.gc();
            List<Cache<Key, Integer>> caches = new ArrayList<>();
            for (int share = from; share < to; share++) {
                for (int fill = 0; fill < size.fills; fill++) {
                    Cache<Key, Integer> cache = cache(size, true);
                    // The cache asks the system for the time.
                    cache.setTimeout(1);
                    int expired = size.entries / EXPIRED[share];
                    for (int number = 0; number < expired; number++) cache.put(Key.of(number), number);
                    cache.setTimeout(LIFETIME_SECONDS);
                    for (int number = expired; number < size.entries; number++) cache.put(Key.of(number), number);
                    caches.add(cache);
                }
            }
            System.gc();
            Thread.sleep(1_010);
            for (int share = from; share < to; share++) {
                int several = size.fills > 1 ? 1 : size.samples;
                samples[share] =
                    new double[][] {new double[size.fills * several], new double[size.fills * several], new double[size.fills]};
                for (int fill = 0; fill < size.fills; fill++) {
                    // What was measured is garbage.
                    Cache<Key, Integer> cache = caches.set((share - from) * size.fills + fill, null);
                    int part = Math.min(size.operations, size.entries / 16);
                    long next = 0;
                    for (Kind kind : new Kind[] {Kind.GET, Kind.REMOVE}) {
                        for (int sample = 0; sample < several; sample++) {
                            Key[] keys = new Key[part];
                            for (int at = 0; at < part; at++) keys[at] = Key.of(nth(next++, size.entries));
                            samples[share][kind.ordinal()][fill * several + sample] = run(cache, kind, new Key[][] {keys});
                        }
                    }
                    int expired = size.entries / EXPIRED[share];
                    double nanos = 0;
                    for (int put = 0; put < expired;) {
                        Key[] keys = new Key[Math.min(expired - put, 1 << 20)];
                        for (int at = 0; at < keys.length; at++) keys[at] = Key.of((long) size.entries + put + at);
                        nanos += run(cache, Kind.PUT, new Key[][] {keys}) * keys.length;
                        put += keys.length;
                    }
                    samples[share][Kind.PUT.ordinal()][fill] = nanos / expired;
                }
            }
        }
    }

    /** Where threads wait until all of them run, each on a processor, since those that sleep wake up one by one. */
    private record StartingLine(int threads, AtomicInteger turn) {
        private static final int ROUNDS = 100;

        StartingLine(int threads) { this(threads, new AtomicInteger()); }

        void await(int thread) {
            for (int round = 0; round < ROUNDS; round++) {
                while (turn.get() != round * threads + thread) Thread.onSpinWait();
                turn.incrementAndGet();
            }
            while (turn.get() != ROUNDS * threads) Thread.onSpinWait();
        }
    }

    private static Cache<Key, Integer> cache(Size size, boolean expires) {
        // Soft references are what the session cache of TLS uses, as the JDK configures it.
        return Cache.newSoftMemoryCache(size.entries, expires ? LIFETIME_SECONDS : 0);
    }

    /** Nanoseconds of one thread per operation. Each list of keys is that of a thread. */
    private static double run(Cache<Key, Integer> cache, Kind kind, Key[][] keys) throws Exception {
        if (keys.length == 1) {
            long start = System.nanoTime();
            operate(cache, kind, keys[0]);
            return (double) (System.nanoTime() - start) / keys[0].length;
        }
        StartingLine line = new StartingLine(keys.length);
        long[] starts = new long[keys.length];
        long[] ends = new long[keys.length];
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < keys.length; number++) {
            int at = number;
            Thread thread = new Thread(() -> {
                line.await(at);
                starts[at] = System.nanoTime();
                operate(cache, kind, keys[at]);
                ends[at] = System.nanoTime();
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) thread.join();
        long time = Arrays.stream(ends).max().getAsLong() - Arrays.stream(starts).min().getAsLong();
        return (double) time / keys[0].length;
    }

    private static void operate(Cache<Key, Integer> cache, Kind kind, Key[] keys) {
        Object found = null;
        int number = 0;
        for (Key key : keys) {
            switch (kind) {
                case GET -> found = cache.get(key);
                case REMOVE -> cache.remove(key);
                case PUT -> cache.put(key, number++);
            }
        }
        sink = found;
    }

    /** Of numbers from 0, each once, the next one far from the last. */
    private static long nth(long number, int entries) {
        return number % entries * (STEP % entries) % entries;
    }

    private static long random(long number) {
        long mixed = number * 0x9e3779b97f4a7c15L;
        mixed = (mixed ^ (mixed >>> 30)) * 0xbf58476d1ce4e5b9L;
        mixed = (mixed ^ (mixed >>> 27)) * 0x94d049bb133111ebL;
        return mixed ^ (mixed >>> 31);
    }
}
