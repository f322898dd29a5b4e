package natsconn

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

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

func TestCredentialsFiles(t *testing.T) {
	t.Parallel()
	o := newOperators(t)
	url := "nats://" + o.server.Addr().String()
	right, _ := o.credentials("worker", time.Now().Add(time.Hour), nil)
	other, _ := o.credentials("other", time.Now().Add(time.Hour), nil)
	old, _ := o.credentials("old", time.Now().Add(-time.Hour), nil)
	strange, _ := o.credentials("strange", time.Time{}, createKey(t, nkeys.CreateAccount))
	const border = "-----BEGIN USER NKEY SEED-----"
	token, seed, _ := bytes.Cut(right, []byte(border))
	_, otherSeed, _ := bytes.Cut(other, []byte(border))

	connects(t, Server{URL: url, Creds: o.file("right", right)})
	for _, c := range []struct {
		name string
		text []byte
		want []string
	}{
		{"expired", old, []string{"expired at", "s ago", "nsc generate creds"}},
		{"of another operator", strange, []string{"Authorization", "does not accept the user of"}},
		{"empty", nil, []string{"is not a credentials file"}},
		{"text", []byte("nothing of the kind"), []string{"is not a credentials file"}},
		{"JWT damaged", append([]byte("-----BEGIN NATS USER JWT-----\neyJnothing.of.it\n------END NATS USER JWT------\n"), seed...),
			[]string{"is not a credentials file: it has no JWT of a user"}},
		{"seed missing", token, []string{"has no seed of the user that its JWT is for"}},
		{"seed of another user", append(append(bytes.Clone(token), border...), otherSeed...), []string{"has no seed of the user that its JWT is for"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := o.file(c.name, c.text)
			refusedWith(t, Server{URL: url, Creds: path}, append(c.want, "MILLRACE_NATS_CREDS", path)...)
		})
	}
	refusedWith(t, Server{URL: url}, "the server does not accept the worker without a user", "MILLRACE_NATS_CREDS")
	missing := filepath.Join(o.dir, "missing")
	refusedWith(t, Server{URL: url, Creds: missing}, "MILLRACE_NATS_CREDS: cannot be read: ", missing, "no such file", "mount the file")
}

func TestNKeys(t *testing.T) {
	t.Parallel()
	user, stranger, account := createKey(t, nkeys.CreateUser), createKey(t, nkeys.CreateUser), createKey(t, nkeys.CreateAccount)
	s := natstest.Plain(t, server.Options{Nkeys: []*server.NkeyUser{{Nkey: publicKey(t, user)}}})
	url := "nats://" + s.Addr().String()
	dir := t.TempDir()
	file := func(name string, text []byte) string { return writeFile(t, filepath.Join(dir, name), text) }
	right := file("right", seedOf(t, user))
	connects(t, Server{URL: url, NKey: right})
	connects(t, Server{URL: url, NKey: file("with a line's end", append(seedOf(t, user), '\n'))})
	for _, c := range []struct {
		name string
		text []byte
		want []string
	}{
		{"unknown", seedOf(t, stranger), []string{"Authorization", "add its public key"}},
		{"of an account", seedOf(t, account), []string{"does not hold the NKey seed of a user", "begins with SU"}},
		{"damaged", append(seedOf(t, user)[:50], "AAAAAAAA"...), []string{"does not hold the NKey seed of a user"}},
		{"empty", nil, []string{"does not hold the NKey seed of a user"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := file(c.name, c.text)
			refusedWith(t, Server{URL: url, NKey: path}, append(c.want, "MILLRACE_NATS_NKEY", path)...)
		})
	}
	plain := natstest.Plain(t, server.Options{}).Addr().String()
	refusedWith(t, Server{URL: "nats://" + plain, NKey: right}, "the server does not accept the user whose seed is in", "MILLRACE_NATS_NKEY")
	for _, f := range (Server{NKey: right}).Inspect(time.Now()) {
		if f.Level != finding.OK || !strings.Contains(f.Found, publicKey(t, user)) {
			t.Errorf("check says %s, want the public key", f)
		}
	}
}

// TestAnNKeyReplacedOnDisk shows that the client can't switch to another user, and the log explains the remedy.
func TestAnNKeyReplacedOnDisk(t *testing.T) {
	t.Parallel()
	user, other := createKey(t, nkeys.CreateUser), createKey(t, nkeys.CreateUser)
	s := natstest.Plain(t, server.Options{Nkeys: []*server.NkeyUser{{Nkey: publicKey(t, user)}, {Nkey: publicKey(t, other)}}})
	path := writeFile(t, filepath.Join(t.TempDir(), "seed"), seedOf(t, user))
	log := natstest.NewLog(t)
	nc, err := Open(Server{URL: "nats://" + s.Addr().String(), NKey: path}, "test", log.Logger(), func() {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	writeFile(t, path, seedOf(t, other))
	if err := nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	log.Await(t, "the server does not accept the user whose seed is in "+path)
	log.Await(t, "restart the worker")
}

// TestCredentialsThatExpireWhileRunning shows that the worker keeps running after the server closes its connection.
// It continues once the file has new credentials.
func TestCredentialsThatExpireWhileRunning(t *testing.T) {
	t.Parallel()
	o := newOperators(t)
	log, again := natstest.NewLog(t), make(reconnections, 1)
	var path string
	var nc *nats.Conn
	// On a slow machine, connecting may take longer than the credentials are valid.
	for life := 2 * time.Second; nc == nil; life *= 2 {
		brief, _ := o.credentials("brief", time.Now().Add(life), nil)
		path = o.file("worker", brief)
		var err error
		if nc, err = Open(Server{URL: "nats://" + o.server.Addr().String(), Creds: path}, "test", log.Logger(), again.one); err != nil && life > natstest.Patience {
			t.Fatal(err)
		}
	}
	t.Cleanup(nc.Close)
	log.Await(t, "disconnected from NATS, reconnecting")
	log.Await(t, "not connected to NATS, trying again")
	log.Await(t, "expired at")
	log.Await(t, "they take effect with the next connection")
	if nc.IsClosed() {
		t.Fatal("the client has given up")
	}
	fresh, _ := o.credentials("fresh", time.Now().Add(time.Hour), nil)
	replace(t, o.file("fresh", fresh), path)
	again.await(t)
}

// TestAUserRemovedWhileRunning shows that the server closes the worker's connection and refuses later ones.
func TestAUserRemovedWhileRunning(t *testing.T) {
	t.Parallel()
	user, other := createKey(t, nkeys.CreateUser), createKey(t, nkeys.CreateUser)
	o := server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, Nkeys: []*server.NkeyUser{{Nkey: publicKey(t, user)}}}
	s := natstest.Plain(t, o)
	path := writeFile(t, filepath.Join(t.TempDir(), "seed"), seedOf(t, user))
	log, again := natstest.NewLog(t), make(reconnections, 1)
	nc, err := Open(Server{URL: "nats://" + s.Addr().String(), NKey: path}, "test", log.Logger(), again.one)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	reload := func(key nkeys.KeyPair) {
		t.Helper()
		changed := o
		changed.Nkeys = []*server.NkeyUser{{Nkey: publicKey(t, key)}}
		if err := s.ReloadOptions(&changed); err != nil {
			t.Fatal(err)
		}
	}
	reload(other)
	log.Await(t, "not connected to NATS, trying again")
	log.Await(t, "the server does not accept the user whose seed is in "+path)
	reload(user)
	again.await(t)
}
