package natsconn

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/natstest"
)

func connects(t *testing.T, c Server) {
	t.Helper()
	nc, err := Open(c, "test", slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.Flush(); err != nil {
		t.Error(err)
	}
}

// refusedWith opens a connection that must fail. It checks that the error text contains every part.
func refusedWith(t *testing.T, c Server, parts ...string) {
	t.Helper()
	got := connectFails(t, c)
	for _, part := range parts {
		if !strings.Contains(got, part) {
			t.Errorf("%q does not say %q", got, part)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ours, others := newAuthority(t, "ours"), newAuthority(t, "others")
	plain := ours.secureServer(current, "127.0.0.1", false, server.Options{}).Addr().String()
	verifying := ours.secureServer(current, "127.0.0.1", true, server.Options{}).Addr().String()
	expired := ours.secureServer(past, "127.0.0.1", false, server.Options{}).Addr().String()
	elsewhere := ours.secureServer(current, "nats.example.com", false, server.Options{}).Addr().String()
	cert, key := ours.client("worker", current)
	oldCert, oldKey := ours.client("old", past)
	newCert, newKey := ours.client("new", future)
	strange, strangeKey := others.client("strange", current)
	text := writeFile(t, filepath.Join(t.TempDir(), "text"), []byte("nothing of the kind"))
	missing := text + ".missing"

	t.Run("server's certificate checked", func(t *testing.T) { connects(t, Server{URL: "tls://" + plain, CA: ours.file}) })
	t.Run("client's certificate shown", func(t *testing.T) {
		connects(t, Server{URL: "nats://" + verifying, CA: ours.file, Cert: cert, Key: key})
	})
	for _, c := range []struct {
		name string
		to   Server
		want []string
	}{
		{"authority unknown to the system", Server{URL: "tls://" + plain}, []string{"name the file of the authority", "MILLRACE_NATS_TLS_CA"}},
		{"another authority", Server{URL: "tls://" + plain, CA: others.file}, []string{"name the file of the authority", "MILLRACE_NATS_TLS_CA"}},
		{"server's certificate expired", Server{URL: "tls://" + expired, CA: ours.file}, []string{"certificate has expired", "its log may say more"}},
		{"wrong host name", Server{URL: "tls://" + elsewhere, CA: ours.file}, []string{"certificate", "127.0.0.1", "compare MILLRACE_NATS_URL"}},
		{"no client's certificate", Server{URL: "tls://" + verifying, CA: ours.file}, []string{"requires one", "MILLRACE_NATS_TLS_CERT"}},
		{"client's certificate of another authority", Server{URL: "tls://" + verifying, CA: ours.file, Cert: strange, Key: strangeKey},
			[]string{"does not accept the worker's certificate", "tls block"}},
		{"client's certificate expired", Server{URL: "tls://" + verifying, CA: ours.file, Cert: oldCert, Key: oldKey},
			[]string{"MILLRACE_NATS_TLS_CERT: " + oldCert, "expired at", "s ago", "they take effect with the next connection"}},
		{"client's certificate of the future", Server{URL: "tls://" + verifying, CA: ours.file, Cert: newCert, Key: newKey},
			[]string{newCert, "is not valid before", "and it is"}},
		{"key of another certificate", Server{URL: "tls://" + verifying, CA: ours.file, Cert: cert, Key: strangeKey},
			[]string{"MILLRACE_NATS_TLS_CERT: " + cert + " does not go with " + strangeKey, "private key does not match public key"}},
		{"key and certificate exchanged", Server{URL: "tls://" + verifying, Cert: key, Key: cert}, []string{key, cert, "may have been switched"}},
		{"no PEM", Server{URL: "tls://" + verifying, CA: text, Cert: text, Key: text},
			[]string{"MILLRACE_NATS_TLS_CA: " + text + " holds no certificate", "MILLRACE_NATS_TLS_CERT: " + text, "failed to find any PEM data"}},
		{"missing", Server{URL: "tls://" + verifying, CA: missing, Cert: cert, Key: missing},
			[]string{"MILLRACE_NATS_TLS_CA: cannot be read: open " + missing, "MILLRACE_NATS_TLS_CERT: " + cert + " does not go with " + missing, "mount the file"}},
	} {
		t.Run(c.name, func(t *testing.T) { t.Parallel(); refusedWith(t, c.to, c.want...) })
	}
}

func TestTLSOnOneSideOnly(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	without := natstest.Plain(t, server.Options{}).Addr().String()
	refusedWith(t, Server{URL: "tls://" + without, CA: ours.file}, "the server there has no TLS", "nats://")
	with := ours.secureServer(current, "127.0.0.1", false, server.Options{}).Addr().String()
	// A client switches to TLS if the server offers TLS, so nothing is sent unencrypted.
	refusedWith(t, Server{URL: "nats://" + with}, "name the file of the authority")
	connects(t, Server{URL: "nats://" + with, CA: ours.file})
}

// TestTLSBeforeTheFirstWord uses servers that expect TLS before their first message. Without the setting for this,
// worker and server wait for each other.
func TestTLSBeforeTheFirstWord(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	first := ours.secureServer(current, "127.0.0.1", false, server.Options{TLSHandshakeFirst: true}).Addr().String()
	refusedWith(t, Server{URL: "tls://" + first, CA: ours.file}, "sent nothing", "handshake_first", "MILLRACE_NATS_TLS_FIRST=true")
	hasty := ours.secureServer(current, "127.0.0.1", false, server.Options{TLSHandshakeFirst: true, TLSTimeout: 0.1}).Addr().String()
	// This server times out soon.
	refusedWith(t, Server{URL: "tls://" + hasty, CA: ours.file}, "EOF", "handshake_first", "MILLRACE_NATS_TLS_FIRST=true")
	connects(t, Server{URL: "tls://" + first, CA: ours.file, TLSFirst: true})
	// The server speaks first once the fallback time has passed. A connection takes far longer than the first
	// server's time and far less than the second's.
	speaks := ours.secureServer(current, "127.0.0.1", false, server.Options{TLSHandshakeFirst: true, TLSHandshakeFirstFallback: time.Millisecond})
	connects(t, Server{URL: "tls://" + speaks.Addr().String(), CA: ours.file})
	waits := ours.secureServer(current, "127.0.0.1", false, server.Options{TLSHandshakeFirst: true, TLSHandshakeFirstFallback: time.Minute})
	connects(t, Server{URL: "tls://" + waits.Addr().String(), CA: ours.file, TLSFirst: true})
	usual := ours.secureServer(current, "127.0.0.1", false, server.Options{}).Addr().String()
	refusedWith(t, Server{URL: "tls://" + usual, CA: ours.file, TLSFirst: true}, "unset MILLRACE_NATS_TLS_FIRST")
}

// TestACertificateReplacedOnDisk lets the certificate expire while the worker runs. The current connection stays up.
// The next one fails with a reason until the file has a new certificate.
func TestACertificateReplacedOnDisk(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	s := ours.secureServer(current, "127.0.0.1", true, server.Options{})
	cert, key := ours.client("worker", current)
	log, again := natstest.NewLog(t), make(reconnections, 1)
	nc, err := Open(Server{URL: "tls://" + s.Addr().String(), CA: ours.file, Cert: cert, Key: key}, "test", log.Logger(), again.one)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	oldCert, oldKey := ours.client("old", past)
	replace(t, oldCert, cert)
	replace(t, oldKey, key)
	if err := nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	log.Await(t, "not connected to NATS, trying again")
	for _, part := range []string{cert, "expired at", "they take effect with the next connection"} {
		if !log.Has(part) {
			t.Errorf("the log does not say %q", part)
		}
	}
	newCert, newKey := ours.client("new", current)
	replace(t, newKey, key)
	replace(t, newCert, cert)
	again.await(t)
}

// replace replaces a file atomically, like Kubernetes does with a renewed Secret.
func replace(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(writeFile(t, to+".next", data), to); err != nil {
		t.Fatal(err)
	}
}

func TestInspectSaysHowLongFilesCount(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	cert, key := ours.client("worker", span{-100 * time.Hour, time.Hour})
	for _, f := range (Server{CA: ours.file, Cert: cert, Key: key}).Inspect(time.Now()) {
		want := finding.OK
		if f.What == "MILLRACE_NATS_TLS_CERT" {
			want = finding.Warning // less than a tenth of its lifetime is left
		}
		if f.Level != want || want == finding.Warning && (!strings.Contains(f.Found, "expires at") || !strings.Contains(f.Advice, "they take effect with the next connection")) {
			t.Errorf("%s: %s, want %s", f.Level, f, want)
		}
	}
}
