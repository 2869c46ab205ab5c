import com.sun.net.httpserver.*;
import com.zaxxer.hikari.*;
import java.io.*;
import java.net.*;
import java.sql.*;
import java.util.*;
import java.util.concurrent.*;

/** The Java server of faults.py: java Faulty PORT POSTGRES_PORT CONNECTIONS. */
public class Faulty {
    static final Map<String, List<String>> ASKS = Map.of(
        "/order", List.of("orders"), "/carts", List.of("carts", "orders"),
        "/stock", List.of("stocks"));
    static HikariDataSource pool;

    static void ask(String what) throws SQLException {
        try (Connection connection = pool.getConnection();
             PreparedStatement query = connection.prepareStatement("select count(*) as " + what
                 + ", pg_sleep(0.006) from generate_series(1, 500)");
             ResultSet rows = query.executeQuery()) {
            rows.next();
        }
    }

    static void answer(HttpExchange request) throws IOException {
        try {
            for (String what : ASKS.get(request.getRequestURI().getPath()))
                ask(what);
        } catch (SQLException e) {
            throw new IOException(e);
        }
        byte[] answer = "ok\n".getBytes();
        request.sendResponseHeaders(200, answer.length);
        request.getResponseBody().write(answer);
        request.close();
    }

    public static void main(String[] args) throws IOException {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl("jdbc:postgresql://127.0.0.1:" + args[1] + "/postgres?user=postgres");
        config.setMaximumPoolSize(Integer.parseInt(args[2]));
        pool = new HikariDataSource(config);
        InetSocketAddress at = new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0]));
        HttpServer server = HttpServer.create(at, 256);
        server.createContext("/", Faulty::answer);
        server.setExecutor(Executors.newFixedThreadPool(16));
        server.start();
    }
}
