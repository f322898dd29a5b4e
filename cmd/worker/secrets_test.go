package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
)

// These constants include secrets, which no output of the worker may contain.
const (
	plantedUser     = "planted-user"
	plantedPassword = "planted-password,with/marks"
	plantedToken    = "planted-token"
	plantedBearer   = "planted-bearer" // token for the collector of spans
)

// debugPages lists all debug pages except pages that record before they respond.
var debugPages = []string{
	"", "timeline", "timeline?after=0", "trace?seconds=60", "debug/pprof/", "debug/pprof/cmdline", "debug/pprof/symbol",
	"debug/pprof/goroutine?debug=2", "debug/pprof/heap?debug=1", "debug/pprof/allocs?debug=1", "debug/pprof/threadcreate?debug=1",
	"debug/pprof/block?debug=1", "debug/pprof/mutex?debug=1", "debug/pprof/heap", "debug/pprof/goroutine",
}

// guarded starts a server with JetStream for the users in o.
func guarded(t *testing.T, o server.Options) (s *server.Server) {
	t.Helper()
	o.Host, o.Port, o.NoLog, o.NoSigs, o.JetStream, o.StoreDir = "127.0.0.1", server.RANDOM_PORT, true, true, true, t.TempDir()
	s, err := server.NewServer(&o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server did not start")
	}
	return s
}

// userCredentials returns the text of a credentials file and its secrets.
func userCredentials(t *testing.T, expires time.Time) (text, seed, token string) {
	t.Helper()
	account, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	public, seed := newUser(t)
	claims := jwt.NewUserClaims(public)
	claims.Expires = expires.Unix()
	if token, err = claims.Encode(account); err != nil {
		t.Fatal(err)
	}
	file, err := jwt.FormatUserConfig(token, []byte(seed))
	if err != nil {
		t.Fatal(err)
	}
	return string(file), seed, token
}

func newUser(t *testing.T) (public, seed string) {
	t.Helper()
	key, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err = key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := key.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return public, string(bytes.Clone(secret))
}

func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSecretsStayInside runs a worker with each kind of secret, stops its server, and searches all output and pages for
// the secret.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	public, seed := newUser(t)
	creds, credsSeed, token := userCredentials(t, time.Now().Add(time.Hour))
	plantedURL := "nats://" + plantedUser + ":" + strings.ReplaceAll(strings.ReplaceAll(plantedPassword, ",", "%2C"), "/", "%2F") + "@"
	for _, c := range []struct {
		name    string
		server  server.Options
		at      string // start of the server address
		file    string
		env     string // variable that names the file
		login   nats.Option
		secrets []string
	}{
		{name: "password", server: server.Options{Username: plantedUser, Password: plantedPassword}, at: plantedURL,
			login: nats.UserInfo(plantedUser, plantedPassword), secrets: []string{plantedUser, plantedPassword, "with/marks", "with%2Fmarks"}},
		{name: "token", server: server.Options{Authorization: plantedToken}, at: "nats://" + plantedToken + "@",
			login: nats.Token(plantedToken), secrets: []string{plantedToken}},
		{name: "seed", server: server.Options{Nkeys: []*server.NkeyUser{{Nkey: public}}}, at: "nats://", file: seed, env: "MILLRACE_NATS_NKEY",
			login: nats.Nkey(public, func(nonce []byte) ([]byte, error) { return signed(seed, nonce) }), secrets: []string{seed}},
		{name: "credentials", at: "nats://", file: creds, env: "MILLRACE_NATS_CREDS", // a server without users accepts any credentials
			login: nats.Name("filler"), secrets: []string{credsSeed, token}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := guarded(t, c.server)
			env := []string{"MILLRACE_NATS_URL=" + c.at + s.Addr().String(), "MILLRACE_PROVISION=true", "MILLRACE_OPERATORS=crc32c",
				"MILLRACE_HTTP_ADDR=127.0.0.1:0", "MILLRACE_DEBUG_ADDR=127.0.0.1:0", "MILLRACE_LOG_FORMAT=json", "MILLRACE_LOG_LEVEL=debug",
				"MILLRACE_DRAIN_TIMEOUT=1s", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TIMEOUT=50",
				"OTEL_BSP_SCHEDULE_DELAY=1", "OTEL_EXPORTER_OTLP_HEADERS=authorization=" + plantedBearer}
			if c.file != "" {
				env = append(env, c.env+"="+secretFile(t, c.file))
			}
			printed := work(t, s, env, c.login)
			for _, command := range []string{"config", "check", "version"} { // these commands run without the server
				r := call(t, env, command)
				printed["worker "+command] = r.out + r.errors
			}
			waiting := start(t, env)
			waiting.await("waiting for NATS")
			printed["/readyz while it waits"] = body(t, address(t, waiting, "serving metrics and health")+"readyz")
			waiting.terminate()
			printed["worker run"] = waiting.text()
			for where, text := range printed {
				for _, secret := range append(c.secrets, plantedBearer) {
					if strings.Contains(text, secret) {
						t.Errorf("%s contains %q", where, secret)
					}
				}
			}
		})
	}
}

func signed(seed string, nonce []byte) ([]byte, error) {
	key, err := nkeys.FromSeed([]byte(seed))
	if err != nil {
		return nil, err
	}
	return key.Sign(nonce)
}

// work runs a worker on some payloads until its server stops. It returns the worker's output and pages by source.
func work(t *testing.T, s *server.Server, env []string, login nats.Option) map[string]string {
	t.Helper()
	p := start(t, env)
	p.await(`"msg":"working"`)
	nc, err := nats.Connect(s.ClientURL(), login)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if _, err := js.Publish(t.Context(), "ingest.test", fmt.Append(nil, "payload ", i)); err != nil {
			t.Fatal(err)
		}
	}
	public, debug := address(t, p, "serving metrics and health"), address(t, p, "serving debug pages")
	awaitBody(t, public+"metrics", `millrace_messages_total{outcome="published"} 20`)
	printed := map[string]string{}
	for _, page := range []string{"metrics", "healthz", "readyz"} {
		printed["/"+page] = body(t, public+page)
	}
	for _, page := range debugPages {
		printed["debug /"+page] = body(t, debug+page)
	}
	check := call(t, env, "check")
	check.want(t, exitDone)
	printed["worker check, connected"] = check.out + check.errors
	s.Shutdown()
	s.WaitForShutdown()
	p.await("not connected to NATS, trying again")
	printed["/readyz without a server"] = body(t, public+"readyz")
	p.await("spans cannot be exported")
	p.terminate()
	printed["the log"] = p.text()
	if !strings.Contains(printed["the log"], `"level":"DEBUG"`) && !strings.Contains(printed["the log"], `"level":"WARN"`) {
		t.Error("the log has no line of level DEBUG or WARN")
	}
	return printed
}
