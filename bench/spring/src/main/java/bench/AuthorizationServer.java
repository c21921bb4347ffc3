package bench;

import com.nimbusds.jose.JOSEException;
import com.nimbusds.jose.jwk.Curve;
import com.nimbusds.jose.jwk.JWK;
import com.nimbusds.jose.jwk.JWKSet;
import com.nimbusds.jose.jwk.gen.ECKeyGenerator;
import com.nimbusds.jose.jwk.gen.RSAKeyGenerator;
import com.nimbusds.jose.jwk.source.ImmutableJWKSet;
import com.nimbusds.jose.jwk.source.JWKSource;
import com.nimbusds.jose.proc.SecurityContext;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.security.crypto.password.PasswordEncoder;
import org.springframework.security.crypto.password.Pbkdf2PasswordEncoder;
import org.springframework.security.crypto.password.Pbkdf2PasswordEncoder.SecretKeyFactoryAlgorithm;
import org.springframework.security.oauth2.core.AuthorizationGrantType;
import org.springframework.security.oauth2.core.ClientAuthenticationMethod;
import org.springframework.security.oauth2.jose.jws.SignatureAlgorithm;
import org.springframework.security.oauth2.server.authorization.OAuth2Authorization;
import org.springframework.security.oauth2.server.authorization.OAuth2AuthorizationService;
import org.springframework.security.oauth2.server.authorization.OAuth2TokenType;
import org.springframework.security.oauth2.server.authorization.client.InMemoryRegisteredClientRepository;
import org.springframework.security.oauth2.server.authorization.client.RegisteredClient;
import org.springframework.security.oauth2.server.authorization.client.RegisteredClientRepository;
import org.springframework.security.oauth2.server.authorization.settings.AuthorizationServerSettings;
import org.springframework.security.oauth2.server.authorization.settings.TokenSettings;
import org.springframework.security.oauth2.server.authorization.token.JwtEncodingContext;
import org.springframework.security.oauth2.server.authorization.token.OAuth2TokenCustomizer;

/** Client-credentials grants for clients from a file, whose lines are an id, a space and a secret. */
@SpringBootApplication
public class AuthorizationServer {

  public static void main(String[] arguments) {
    SpringApplication.run(AuthorizationServer.class, arguments);
  }

  @Bean
  RegisteredClientRepository clients(@Value("${bench.clients}") Path file, PasswordEncoder encoder)
      throws IOException {
    List<RegisteredClient> clients =
        Files.readAllLines(file).stream().map(line -> client(line.split(" "), encoder)).toList();
    return new InMemoryRegisteredClientRepository(clients);
  }

  private static RegisteredClient client(String[] words, PasswordEncoder encoder) {
    return RegisteredClient.withId(words[0])
        .clientId(words[0])
        .clientSecret(encoder.encode(words[1]))
        .clientAuthenticationMethod(ClientAuthenticationMethod.CLIENT_SECRET_BASIC)
        .clientAuthenticationMethod(ClientAuthenticationMethod.CLIENT_SECRET_POST)
        .authorizationGrantType(AuthorizationGrantType.CLIENT_CREDENTIALS)
        .tokenSettings(TokenSettings.builder().accessTokenTimeToLive(Duration.ofHours(1)).build())
        .build();
  }

  @Bean
  JWKSource<SecurityContext> keys(@Value("${bench.algorithm}") String algorithm) throws JOSEException {
    JWK key =
        switch (algorithm) {
          case "ES256" -> new ECKeyGenerator(Curve.P_256).keyID("bench").generate();
          case "RS256" -> new RSAKeyGenerator(2048).keyID("bench").generate();
          default -> throw new IllegalArgumentException(algorithm);
        };
    return new ImmutableJWKSet<>(new JWKSet(key));
  }

  @Bean
  OAuth2TokenCustomizer<JwtEncodingContext> algorithm(@Value("${bench.algorithm}") String algorithm) {
    SignatureAlgorithm wanted = SignatureAlgorithm.from(algorithm);
    return context -> context.getJwsHeader().algorithm(wanted);
  }

  @Bean
  AuthorizationServerSettings settings(@Value("${bench.issuer}") String issuer) {
    return AuthorizationServerSettings.builder().issuer(issuer).build();
  }

  /** A JWT needs no memory of it. The default keeps every token that was ever issued, in the heap. */
  @Bean
  OAuth2AuthorizationService authorizations() {
    return new OAuth2AuthorizationService() {
      @Override
      public void save(OAuth2Authorization authorization) {}

      @Override
      public void remove(OAuth2Authorization authorization) {}

      @Override
      public OAuth2Authorization findById(String id) {
        return null;
      }

      @Override
      public OAuth2Authorization findByToken(String token, OAuth2TokenType type) {
        return null;
      }
    };
  }

  /**
   * PBKDF2 for secrets that somebody chose; one SHA-256, which suffices for random ones, compared in constant time: what
   * Cardea keeps of both.
   */
  @Bean
  PasswordEncoder encoder(@Value("${bench.iterations}") int iterations) {
    if (iterations > 0) {
      return new Pbkdf2PasswordEncoder("", 16, iterations, SecretKeyFactoryAlgorithm.PBKDF2WithHmacSHA512);
    }
    return new PasswordEncoder() {
      @Override
      public String encode(CharSequence secret) {
        return HexFormat.of().formatHex(digest(secret));
      }

      @Override
      public boolean matches(CharSequence secret, String stored) {
        return MessageDigest.isEqual(digest(secret), HexFormat.of().parseHex(stored));
      }
    };
  }

  private static byte[] digest(CharSequence secret) {
    try {
      return MessageDigest.getInstance("SHA-256").digest(secret.toString().getBytes(StandardCharsets.UTF_8));
    } catch (NoSuchAlgorithmException impossible) {
      throw new IllegalStateException(impossible);
    }
  }
}
