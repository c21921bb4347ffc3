import com.nimbusds.oauth2.sdk.AccessTokenResponse;
import com.nimbusds.oauth2.sdk.ClientCredentialsGrant;
import com.nimbusds.oauth2.sdk.OAuth2Error;
import com.nimbusds.oauth2.sdk.Scope;
import com.nimbusds.oauth2.sdk.TokenRequest;
import com.nimbusds.oauth2.sdk.TokenResponse;
import com.nimbusds.oauth2.sdk.auth.ClientAuthentication;
import com.nimbusds.oauth2.sdk.auth.ClientSecretBasic;
import com.nimbusds.oauth2.sdk.auth.ClientSecretPost;
import com.nimbusds.oauth2.sdk.auth.Secret;
import com.nimbusds.oauth2.sdk.http.HTTPRequest;
import com.nimbusds.oauth2.sdk.http.HTTPResponse;
import com.nimbusds.oauth2.sdk.id.ClientID;
import com.nimbusds.oauth2.sdk.id.Issuer;
import com.nimbusds.oauth2.sdk.token.AccessToken;
import com.nimbusds.openid.connect.sdk.op.OIDCProviderConfigurationRequest;
import com.nimbusds.openid.connect.sdk.op.OIDCProviderMetadata;
import java.io.InputStream;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.List;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;

/** The Nimbus SDK: discovery, client credentials by both ways, calls with the token. */
public final class NimbusClient {
    private static final int TIMEOUT_MILLIS = 20_000;

    private final SSLSocketFactory sockets;
    private final URI api = URI.create(environment("CARDEA_API_URL"));
    private final ClientID id = new ClientID(environment("CARDEA_CLIENT_ID"));
    private final String secret = environment("CARDEA_CLIENT_SECRET");
    private URI endpoint;

    private NimbusClient() throws Exception {
        sockets = trusting(Path.of(environment("CARDEA_CA_FILE")));
    }

    public static void main(String[] arguments) {
        try {
            new NimbusClient().run();
            System.out.println("ok nimbus");
        } catch (Exception error) {
            System.err.println("nimbus: " + error);
            System.exit(1);
        }
    }

    private void run() throws Exception {
        Issuer issuer = new Issuer(environment("CARDEA_ISSUER"));
        HTTPResponse discovery = send(new OIDCProviderConfigurationRequest(issuer).toHTTPRequest());
        check(discovery.getStatusCode() == 200, "discovery: status " + discovery.getStatusCode());
        OIDCProviderMetadata metadata = OIDCProviderMetadata.parse(discovery.getBodyAsJSONObject());
        check(metadata.getIssuer().equals(issuer), "discovery: issuer is " + metadata.getIssuer());
        endpoint = metadata.getTokenEndpointURI();

        HTTPResponse anonymous = send(new HTTPRequest(HTTPRequest.Method.GET, api));
        check(anonymous.getStatusCode() == 401, "without a token: status " + anonymous.getStatusCode());

        trip(new ClientSecretBasic(id, new Secret(secret)), new ClientSecretBasic(id, new Secret(secret + "x")));
        trip(new ClientSecretPost(id, new Secret(secret)), new ClientSecretPost(id, new Secret(secret + "x")));
    }

    private void trip(ClientAuthentication right, ClientAuthentication wrong) throws Exception {
        String method = right.getMethod().getValue();
        TokenResponse response = ask(right);
        check(response.indicatesSuccess(), method + ": " + response.toHTTPResponse().getBody());
        AccessTokenResponse success = response.toSuccessResponse();
        AccessToken token = success.getTokens().getAccessToken();
        check(token.getLifetime() > 0, method + ": expires_in is " + token.getLifetime());

        HTTPRequest call = new HTTPRequest(HTTPRequest.Method.GET, api);
        call.setAuthorization(token.toAuthorizationHeader());
        HTTPResponse answer = send(call);
        check(answer.getStatusCode() == 200, method + ": " + answer.getStatusCode() + ": " + answer.getBody());
        answer.getBodyAsJSONObject();

        TokenResponse refused = ask(wrong);
        check(!refused.indicatesSuccess(), method + ": a wrong secret was accepted");
        String code = refused.toErrorResponse().getErrorObject().getCode();
        check(OAuth2Error.INVALID_CLIENT.getCode().equals(code), method + ": a wrong secret gives " + code);
    }

    private TokenResponse ask(ClientAuthentication authentication) throws Exception {
        Scope scope = Scope.parse(environment("CARDEA_SCOPE"));
        List<URI> resources = List.of(URI.create(environment("CARDEA_RESOURCE")));
        TokenRequest request = new TokenRequest.Builder(endpoint, authentication, new ClientCredentialsGrant())
            .scope(scope)
            .resources(resources.toArray(new URI[0]))
            .build();
        return TokenResponse.parse(send(request.toHTTPRequest()));
    }

    private HTTPResponse send(HTTPRequest request) throws Exception {
        request.setSSLSocketFactory(sockets);
        request.setConnectTimeout(TIMEOUT_MILLIS);
        request.setReadTimeout(TIMEOUT_MILLIS);
        return request.send();
    }

    private static SSLSocketFactory trusting(Path authority) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (InputStream pem = Files.newInputStream(authority)) {
            for (Certificate certificate : CertificateFactory.getInstance("X.509").generateCertificates(pem)) {
                store.setCertificateEntry("authority-" + store.size(), certificate);
            }
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context.getSocketFactory();
    }

    private static String environment(String name) {
        String value = System.getenv(name);
        if (value == null || value.isEmpty()) {
            throw new IllegalStateException(name + " is not set");
        }
        return value;
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }
}
