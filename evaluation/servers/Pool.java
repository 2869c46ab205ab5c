import java.io.*;
import java.net.*;
import java.nio.file.*;
import java.util.concurrent.*;

/** A thread for each connection; the query is made in a fixed pool, whose result is waited for.
 *
 * java Pool.java PORT THREADS REDIS_PORT TRUTH; requests and TRUTH are as in pool.c. */
public class Pool {
    static final ThreadLocal<Socket> REDIS = new ThreadLocal<>();
    static PrintStream truth;

    static long tid() throws IOException {
        String text = Files.readString(Path.of("/proc/thread-self/stat"));
        return Long.parseLong(text.substring(0, text.indexOf(' ')));
    }

    static String query(int id, int port) throws IOException {
        Socket redis = REDIS.get();
        if (redis == null) {
            redis = new Socket("127.0.0.1", port);
            redis.setTcpNoDelay(true);
            REDIS.set(redis);
        }
        long begin = System.nanoTime();
        redis.getOutputStream().write(("INCR j" + id % 50 + "\r\n").getBytes());
        byte[] answer = new byte[128];
        redis.getInputStream().read(answer);
        return redis.getLocalPort() + ":" + begin + ":" + System.nanoTime();
    }

    static long spin(long rounds) {
        long x = rounds;
        for (long i = 0; i < rounds; i++) x = x * 31 + i;
        return x;
    }

    static void serve(Socket client, ExecutorService pool, int port) {
        try (client) {
            long tid = tid(), sink = 0;
            BufferedReader in = new BufferedReader(new InputStreamReader(client.getInputStream()));
            OutputStream out = client.getOutputStream();
            for (String line; (line = in.readLine()) != null; ) {
                int id = Integer.parseInt(line.trim());
                long begin = System.nanoTime();
                sink += spin(20_000 + id * 7919L % 100_000);
                String asked = pool.submit(() -> {
                    spin(50_000);
                    return query(id, port);
                }).get();
                out.write((id + "\n").getBytes());
                long end = System.nanoTime();
                synchronized (truth) {
                    truth.println(id + " " + tid + " " + begin + " " + end + " "
                        + client.getPort() + " " + asked + (sink == 1 ? " " : ""));
                }
            }
        } catch (IOException | InterruptedException | ExecutionException e) {
            System.err.println(e);
        }
    }

    public static void main(String[] args) throws IOException {
        int redis = Integer.parseInt(args[2]);
        truth = new PrintStream(new FileOutputStream(args[3], true), true);
        ExecutorService pool = Executors.newFixedThreadPool(Integer.parseInt(args[1]));
        try (ServerSocket listening = new ServerSocket()) {
            listening.setReuseAddress(true);
            listening.bind(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 256);
            while (true) {
                Socket client = listening.accept();
                client.setTcpNoDelay(true);
                new Thread(() -> serve(client, pool, redis)).start();
            }
        }
    }
}
