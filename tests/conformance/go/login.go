package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Time between two records of logIn.
const pause = 50 * time.Millisecond

// logIn logs in as the file says, which has librdkafka's settings. It tells "read" with the value
// that it has written and read, then writes until the program is ended and tells "wrote" for each
// record. It tells "failed" with an error, and ends.
func logIn(file, topic string) {
	settings := settingsOf(file)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(settings["bootstrap.servers"]),
		kgo.DialTLSConfig(tlsOf(settings)),
		kgo.SASL(mechanismsOf(settings)...),
		kgo.DefaultProduceTopic(topic),
		kgo.DisableIdempotentWrite(),
		kgo.RecordRetries(0),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}),
	)
	if err != nil {
		fail(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := write(ctx, client, "by franz-go"); err != nil {
		tell("failed", err)
		return
	}
	until(client, 1, func(record *kgo.Record) { tell("read", string(record.Value)) })
	for {
		offset, err := write(context.Background(), client, "more")
		if err != nil {
			tell("failed", err)
			return
		}
		tell("wrote", offset)
		time.Sleep(pause)
	}
}

func write(ctx context.Context, client *kgo.Client, value string) (int64, error) {
	record, err := client.ProduceSync(ctx, kgo.StringRecord(value)).First()
	if err != nil {
		return 0, err
	}
	return record.Offset, nil
}

func settingsOf(path string) map[string]string {
	file, err := os.Open(path)
	if err != nil {
		fail(err)
	}
	defer file.Close()
	settings := map[string]string{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		settings[name] = value
	}
	return settings
}

// tlsOf trusts the authority of the file, and has its certificate if it names one.
func tlsOf(settings map[string]string) *tls.Config {
	authority, err := os.ReadFile(settings["ssl.ca.location"])
	if err != nil {
		fail(err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(authority) {
		fail("no certificate in " + settings["ssl.ca.location"])
	}
	config := &tls.Config{RootCAs: trusted}
	if path := settings["ssl.certificate.location"]; path != "" {
		own, err := tls.LoadX509KeyPair(path, settings["ssl.key.location"])
		if err != nil {
			fail(err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config
}

func mechanismsOf(settings map[string]string) []sasl.Mechanism {
	user, password := settings["sasl.username"], settings["sasl.password"]
	switch mechanism := settings["sasl.mechanisms"]; mechanism {
	case "":
		return nil
	case "PLAIN":
		return []sasl.Mechanism{plain.Auth{User: user, Pass: password}.AsMechanism()}
	case "SCRAM-SHA-256":
		return []sasl.Mechanism{scram.Auth{User: user, Pass: password}.AsSha256Mechanism()}
	case "SCRAM-SHA-512":
		return []sasl.Mechanism{scram.Auth{User: user, Pass: password}.AsSha512Mechanism()}
	case "OAUTHBEARER":
		return []sasl.Mechanism{oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			token, err := newToken(ctx, settings)
			return oauth.Auth{Token: token}, err
		})}
	default:
		fail("no mechanism " + mechanism)
		return nil
	}
}

// newToken asks the provider for a token with the client's secret (RFC 6749, 4.4).
func newToken(ctx context.Context, settings map[string]string) (string, error) {
	form := strings.NewReader(url.Values{"grant_type": {"client_credentials"}}.Encode())
	endpoint := settings["sasl.oauthbearer.token.endpoint.url"]
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, form)
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.SetBasicAuth(
		settings["sasl.oauthbearer.client.id"], settings["sasl.oauthbearer.client.secret"])
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the provider answers %s", response.Status)
	}
	var answer struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return "", err
	}
	if answer.AccessToken == "" {
		return "", errors.New("the provider answers without a token")
	}
	return answer.AccessToken, nil
}
