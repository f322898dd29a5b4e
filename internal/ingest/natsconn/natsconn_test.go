package natsconn

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"millrace/internal/ingest/natstest"
)

func connectFails(t *testing.T, c Server) string {
	t.Helper()
	nc, err := Open(c, "test", slog.New(slog.DiscardHandler), func() {})
	if err == nil {
		nc.Close()
		t.Fatal("connected")
	}
	return err.Error()
}

func TestConnectSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s := natstest.Plain(t, server.Options{Users: []*server.User{{Username: "ann", Password: "pass-right"}}})
	addr := s.Addr().String()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		to   Server
		want []string
	}{
		{"nobody there", Server{URL: "nats://127.0.0.1:1"},
			[]string{"nats://127.0.0.1:1", "is a server running there", "MILLRACE_NATS_URL"}},
		{"wrong password", Server{URL: "nats://ann:pass-wrong@" + addr},
			[]string{"nats://" + addr, "Authorization", "does not accept the user, password or token in MILLRACE_NATS_URL"}},
		{"bad address", Server{URL: "nats://ann:pass-wrong@host:port"}, []string{"not a URL", "percent-encode", "MILLRACE_NATS_URL"}},
		{"password not encoded", Server{URL: "nats://ann:pass-/@" + addr}, []string{"not a URL", "percent-encode", "MILLRACE_NATS_URL"}},
		{"no credentials", Server{URL: "nats://" + addr, Creds: empty + ".gone"}, []string{"MILLRACE_NATS_CREDS", "no such file"}},
		{"no seed", Server{URL: "nats://" + addr, NKey: empty}, []string{"MILLRACE_NATS_NKEY", empty}},
		{"no files at all", Server{URL: "nats://" + addr, CA: empty + ".ca", NKey: empty + ".seed"},
			[]string{"MILLRACE_NATS_TLS_CA", empty + ".ca", "MILLRACE_NATS_NKEY", empty + ".seed"}},
		{"no authorities", Server{URL: "nats://" + addr, CA: empty}, []string{"MILLRACE_NATS_TLS_CA", empty}},
		{"no certificate", Server{URL: "nats://" + addr, Cert: empty, Key: empty}, []string{"MILLRACE_NATS_TLS_CERT"}},
		{"no TLS there", Server{URL: "tls://ann:pass-right@" + addr}, []string{"tls://" + addr, "the server there has no TLS"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := connectFails(t, c.to)
			for _, part := range c.want {
				if !strings.Contains(got, part) {
					t.Errorf("%q does not say %q", got, part)
				}
			}
			if strings.Contains(got, "pass-") {
				t.Errorf("%q tells the password", got)
			}
		})
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"nats://host:4222":                       "nats://host:4222",
		"nats://ann:secret@host:4222":            "nats://host:4222",
		"nats://token@host":                      "nats://host",
		"nats://a:s@one:1, tls://b:t@two:2":      "nats://one:1,tls://two:2",
		"ann:secret@host:4222":                   "host:4222",
		"nats://ann:se%zzcret@host":              "nats://host",
		"nats://ann:secret@host:port,nats://two": "nats://host:port,nats://two",
		"nats://ann:se/c@ret@host":               "nats://host",
		"":                                       "",
	} {
		if got := Redact(in); got != want {
			t.Errorf("Redact(%q) = %q, want %q", in, got, want)
		}
	}
}
