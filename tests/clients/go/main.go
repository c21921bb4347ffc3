// The client credentials of golang.org/x/oauth2: a token by both ways of authentication, calls with it.
//
// The library has no discovery of its own; the metadata are read with net/http.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

const bodyBytesMax = 1 << 20

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "golang.org/x/oauth2:", err)
		os.Exit(1)
	}
	fmt.Println("ok golang.org/x/oauth2")
}

func run() error {
	plain, err := httpClient(os.Getenv("CARDEA_CA_FILE"))
	if err != nil {
		return err
	}
	endpoint, err := discover(plain, os.Getenv("CARDEA_ISSUER"))
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	if _, err := call(plain, http.StatusUnauthorized); err != nil {
		return fmt.Errorf("without a token: %w", err)
	}
	styles := map[string]oauth2.AuthStyle{
		"client_secret_basic": oauth2.AuthStyleInHeader,
		"client_secret_post":  oauth2.AuthStyleInParams,
	}
	for name, style := range styles {
		if err := trip(plain, endpoint, style); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// trip gets a token, calls with it, and is refused with a wrong secret.
func trip(plain *http.Client, endpoint string, style oauth2.AuthStyle) error {
	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, plain)
	config := clientcredentials.Config{
		ClientID:       os.Getenv("CARDEA_CLIENT_ID"),
		ClientSecret:   os.Getenv("CARDEA_CLIENT_SECRET"),
		TokenURL:       endpoint,
		Scopes:         strings.Fields(os.Getenv("CARDEA_SCOPE")),
		EndpointParams: url.Values{"resource": {os.Getenv("CARDEA_RESOURCE")}},
		AuthStyle:      style,
	}
	token, err := config.Token(ctx)
	if err != nil {
		return err
	}
	if token.Type() != "Bearer" {
		return fmt.Errorf("token type is %q", token.Type())
	}
	if !token.Expiry.After(time.Now()) {
		return fmt.Errorf("the token expires at %v", token.Expiry)
	}
	body, err := call(config.Client(ctx), http.StatusOK)
	if err != nil {
		return err
	}
	if !json.Valid(body) {
		return fmt.Errorf("the answer is not JSON: %s", body)
	}

	config.ClientSecret += "x"
	_, err = config.Token(ctx)
	var refusal *oauth2.RetrieveError
	if !errors.As(err, &refusal) || refusal.ErrorCode != "invalid_client" {
		return fmt.Errorf("a wrong secret gives %v", err)
	}
	return nil
}

// call sends a GET to the protected address and returns the body of the expected answer.
func call(client *http.Client, expected int) ([]byte, error) {
	response, err := client.Get(os.Getenv("CARDEA_API_URL"))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, bodyBytesMax))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != expected {
		return nil, fmt.Errorf("expected %d, got %s: %s", expected, response.Status, body)
	}
	return body, nil
}

// discover returns the token endpoint, after the check of RFC 8414 section 3.3.
func discover(client *http.Client, issuer string) (string, error) {
	response, err := client.Get(strings.TrimSuffix(issuer, "/") + "/.well-known/openid-configuration")
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var metadata struct {
		Issuer        string `json:"issuer"`
		TokenEndpoint string `json:"token_endpoint"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, bodyBytesMax)).Decode(&metadata); err != nil {
		return "", err
	}
	if metadata.Issuer != issuer {
		return "", fmt.Errorf("the issuer is %q, not %q", metadata.Issuer, issuer)
	}
	return metadata.TokenEndpoint, nil
}

func httpClient(authority string) (*http.Client, error) {
	pem, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in it", authority)
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots},
		ForceAttemptHTTP2: true,
	}
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}, nil
}
