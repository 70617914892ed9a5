import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Uses a server for a while, and prints how that went. Arguments: the URL without TLS, the one with TLS, the time in ms, a certificate to trust. */
public class Client {
    static final byte[] body = new byte[200 << 10];
    static int requests, failures;
    static String first = "";

    static synchronized void count(String failure) {
        requests++;
        if (failure != null && failures++ == 0) {
            first = failure.replaceAll("[\\\\\"\\n]", " ");
        }
    }

    record Call(String path, int size, int upload, int status) {}

    static final Call[] calls = {
        new Call("/small", 13, -1, 200), new Call("/medium", 64 << 10, -1, 200), new Call("/large", 1 << 20, -1, 200),
        new Call("/slow", 13, -1, 200), new Call("/body", -1, body.length, 200), new Call("/events", -1, -1, 200),
        new Call("/early", -1, 10 << 10, 401), new Call("/early", -1, body.length, 401),
    };

    static String send(HttpClient client, String base, Call call) {
        try {
            var request = HttpRequest.newBuilder(URI.create(base + call.path)).timeout(Duration.ofSeconds(20));
            if (call.upload >= 0) {
                request.POST(HttpRequest.BodyPublishers.ofByteArray(body, 0, call.upload));
            }
            HttpResponse<byte[]> answer = client.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
            if (answer.statusCode() != call.status || call.size >= 0 && answer.body().length != call.size) {
                return call + ": " + answer.statusCode() + " with " + answer.body().length + " bytes";
            }
            return null;
        } catch (Exception e) {
            return call + " at " + base + ": " + e;
        }
    }

    public static void main(String[] args) throws Exception {
        Arrays.fill(body, (byte) 'a');
        var store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null);
        try (var in = Files.newInputStream(Path.of(args[3]))) {
            store.setCertificateEntry("server", CertificateFactory.getInstance("X.509").generateCertificate(in));
        }
        var trusted = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trusted.init(store);
        var tls = SSLContext.getInstance("TLS");
        tls.init(null, trusted.getTrustManagers(), null);
        long end = System.currentTimeMillis() + Long.parseLong(args[2]);
        List<Thread> threads = new ArrayList<>();
        for (var version : HttpClient.Version.values()) {
            for (String base : List.of(args[0], args[1])) {
                var client = HttpClient.newBuilder().version(version).sslContext(tls).build();
                for (int i = 0; i < 4; i++) {
                    int from = i;
                    var thread = new Thread(() -> {
                        for (int n = from; System.currentTimeMillis() < end; n++) {
                            count(send(client, base, calls[n % calls.length]));
                        }
                    });
                    thread.start();
                    threads.add(thread);
                }
            }
        }
        for (var thread : threads) {
            thread.join();
        }
        System.out.printf("{\"requests\": %d, \"failures\": %d, \"first\": \"%s\"}%n", requests, failures, first);
        System.exit(0);
    }
}
