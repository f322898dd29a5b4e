package natsconn

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/natstest"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	ours, others := newAuthority(t, "ours"), newAuthority(t, "others")
	plain, verifying := ours.local(server.Options{}), ours.secureServer(current, "127.0.0.1", true, server.Options{})
	expired := ours.secureServer(past, "127.0.0.1", false, server.Options{})
	elsewhere := ours.secureServer(current, "nats.example.com", false, server.Options{})
	cert, key := ours.client("worker", current)
	oldCert, oldKey := ours.client("old", past)
	newCert, newKey := ours.client("new", future)
	strange, strangeKey := others.client("strange", current)
	text := writeFile(t, filepath.Join(t.TempDir(), "text"), []byte("nothing of the kind"))
	missing := text + ".missing"

	showing := func(cert, key string) Server {
		return Server{URL: "tls://" + verifying, CA: ours.file, Cert: cert, Key: key}
	}

	open(t, Server{URL: "tls://" + plain, CA: ours.file})
	open(t, Server{URL: "nats://" + verifying, CA: ours.file, Cert: cert, Key: key})
	// A client switches to TLS if the server offers TLS, so it sends nothing unencrypted.
	open(t, Server{URL: "nats://" + plain, CA: ours.file})
	unknown := []string{"name the file of the authority", "MILLRACE_NATS_TLS_CA"}
	refusals(t,
		refusal{name: "authority unknown to the system", to: Server{URL: "tls://" + plain}, want: unknown},
		refusal{name: "offered by the server", to: Server{URL: "nats://" + plain}, want: unknown},
		refusal{name: "another authority", to: Server{URL: "tls://" + plain, CA: others.file}, want: unknown},
		refusal{name: "server's certificate expired", to: Server{URL: "tls://" + expired, CA: ours.file},
			want: []string{"certificate has expired", "its log may say more"}, temporary: true},
		refusal{name: "wrong host name", to: Server{URL: "tls://" + elsewhere, CA: ours.file},
			want: []string{"certificate", "127.0.0.1", "compare MILLRACE_NATS_URL"}},
		refusal{name: "no client's certificate", to: showing("", ""), want: []string{"requires one", "MILLRACE_NATS_TLS_CERT"}},
		refusal{name: "client's certificate of another authority", to: showing(strange, strangeKey),
			want: []string{"does not accept the worker's certificate", "tls block"}},
		refusal{name: "client's certificate expired", to: showing(oldCert, oldKey),
			want: []string{"MILLRACE_NATS_TLS_CERT: " + oldCert, "expired at", "s ago", "they take effect with the next connection"}},
		refusal{name: "client's certificate of the future", to: showing(newCert, newKey),
			want: []string{newCert, "is not valid before", "and it is"}},
		refusal{name: "key of another certificate", to: showing(cert, strangeKey), want: []string{
			"MILLRACE_NATS_TLS_CERT: " + cert + " does not go with " + strangeKey, "private key does not match public key"}},
		refusal{name: "key and certificate exchanged", to: showing(key, cert), want: []string{key, cert, "may have been switched"}},
		refusal{name: "no PEM", to: Server{URL: "tls://" + verifying, CA: text, Cert: text, Key: text}, want: []string{
			"MILLRACE_NATS_TLS_CA: " + text + " holds no certificate", "MILLRACE_NATS_TLS_CERT: " + text, "failed to find any PEM data"}},
		refusal{name: "missing", to: Server{URL: "tls://" + verifying, CA: missing, Cert: cert, Key: missing}, want: []string{
			"MILLRACE_NATS_TLS_CA: cannot be read: open " + missing,
			"MILLRACE_NATS_TLS_CERT: " + cert + " does not go with " + missing, "mount the file"}},
	)
}

// TestTLSBeforeTheFirstWord uses servers that expect TLS before their first message. Without the setting for this,
// worker and server wait for each other.
func TestTLSBeforeTheFirstWord(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	to := func(address string, first bool) Server {
		return Server{URL: "tls://" + address, CA: ours.file, TLSFirst: first}
	}
	first := ours.local(server.Options{TLSHandshakeFirst: true})
	open(t, to(first, true))
	// The server speaks first once the fallback time has passed. A connection takes far longer than the fallback time of
	// the first server, and far less than the fallback time of the second server.
	open(t, to(ours.local(server.Options{TLSHandshakeFirst: true, TLSHandshakeFirstFallback: time.Millisecond}), false))
	open(t, to(ours.local(server.Options{TLSHandshakeFirst: true, TLSHandshakeFirstFallback: time.Minute}), true))
	advice := []string{"handshake_first", "set MILLRACE_NATS_TLS_FIRST=true"}
	unknown := to(first, false)
	unknown.CA = newAuthority(t, "others").file
	refusals(t,
		refusal{name: "the server waits", to: to(first, false), want: advice},
		refusal{name: "the server waits and is unknown", to: unknown, want: advice},
		refusal{name: "the server times out soon", to: to(ours.local(server.Options{TLSHandshakeFirst: true, TLSTimeout: 1}), false), want: advice},
		refusal{name: "the server speaks first", want: []string{"unset MILLRACE_NATS_TLS_FIRST"}, to: to(ours.local(server.Options{}), true)},
		refusal{name: "no NATS server", want: []string{"sent nothing"}, temporary: true, to: to(hangsUp(t), false)},
		refusal{name: "no NATS server, with TLS first", want: []string{"sent nothing"}, temporary: true, to: to(hangsUp(t), true)},
	)
}

// TestACertificateReplacedOnDisk lets the certificate expire while the worker runs. The current connection stays up.
// The next one fails with a reason until the file has a new certificate.
func TestACertificateReplacedOnDisk(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	address := ours.secureServer(current, "127.0.0.1", true, server.Options{})
	cert, key := ours.client("worker", current)
	w := open(t, Server{URL: "tls://" + address, CA: ours.file, Cert: cert, Key: key})
	oldCert, oldKey := ours.client("old", past)
	replace(t, oldCert, cert)
	replace(t, oldKey, key)
	natstest.OK(t, w.ForceReconnect())
	w.log.Await(t, "not connected to NATS, trying again")
	for _, part := range []string{cert, "expired at", "they take effect with the next connection"} {
		if !w.log.Has(part) {
			t.Errorf("the log does not say %q", part)
		}
	}
	newCert, newKey := ours.client("new", current)
	replace(t, newKey, key)
	replace(t, newCert, cert)
	w.awaitReconnected(t)
}

// replace replaces a file atomically, like Kubernetes does with a renewed Secret.
func replace(t *testing.T, from, to string) {
	t.Helper()
	natstest.OK(t, os.Rename(writeFile(t, to+".next", natstest.Must(os.ReadFile(from))(t)), to))
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
		if f.Level != want {
			t.Errorf("%s: %s, want %s", f.Level, f, want)
		}
		if want == finding.Warning {
			wantParts(t, f.Found, "expires at")
			wantParts(t, f.Advice, "they take effect with the next connection")
		}
	}
}

func TestCredentialsFiles(t *testing.T) {
	t.Parallel()
	o := newOperators(t)
	right := o.credentials("worker", time.Now().Add(time.Hour), o.account)
	other := o.credentials("other", time.Now().Add(time.Hour), o.account)
	const border = "-----BEGIN USER NKEY SEED-----"
	token, seed, _ := bytes.Cut(right, []byte(border))
	_, otherSeed, _ := bytes.Cut(other, []byte(border))

	open(t, Server{URL: o.url, Creds: o.file("right", right)})
	for name, c := range map[string]struct {
		text []byte
		want []string
	}{
		"expired": {o.credentials("old", time.Now().Add(-time.Hour), o.account), []string{"expired at", "s ago", "nsc generate creds"}},
		"of another operator": {o.credentials("strange", time.Time{}, createKey(t, nkeys.CreateAccount)),
			[]string{"Authorization", "does not accept the user of"}},
		"empty": {nil, []string{"is not a credentials file"}},
		"text":  {[]byte("nothing of the kind"), []string{"is not a credentials file"}},
		"JWT damaged": {append([]byte("-----BEGIN NATS USER JWT-----\neyJnothing.of.it\n------END NATS USER JWT------\n"), seed...),
			[]string{"is not a credentials file: it has no JWT of a user"}},
		"seed missing":         {token, []string{"has no seed of the user that its JWT is for"}},
		"seed of another user": {slices.Concat(token, []byte(border), otherSeed), []string{"has no seed of the user that its JWT is for"}},
	} {
		path := o.file(name, c.text)
		refusals(t, refusal{name: name, to: Server{URL: o.url, Creds: path}, want: append(c.want, "MILLRACE_NATS_CREDS", path)})
	}
	missing := filepath.Join(o.dir, "missing")
	refusals(t,
		refusal{name: "none", to: Server{URL: o.url},
			want: []string{"the server does not accept the worker without a user", "MILLRACE_NATS_CREDS"}},
		refusal{name: "missing", to: Server{URL: o.url, Creds: missing},
			want: []string{"MILLRACE_NATS_CREDS: cannot be read: ", missing, "no such file", "mount the file"}},
	)
}

// users starts a server that accepts users with the given keys. reload changes them.
func users(t *testing.T, keys ...nkeys.KeyPair) (url string, reload func(keys ...nkeys.KeyPair)) {
	t.Helper()
	o := server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true}
	accepting := func(keys []nkeys.KeyPair) server.Options {
		changed := o
		for _, key := range keys {
			changed.Nkeys = append(changed.Nkeys, &server.NkeyUser{Nkey: publicKey(t, key)})
		}
		return changed
	}
	s := natstest.Plain(t, accepting(keys))
	return s.ClientURL(), func(keys ...nkeys.KeyPair) {
		t.Helper()
		changed := accepting(keys)
		natstest.OK(t, s.ReloadOptions(&changed))
	}
}

// seedFile writes a seed to a new file.
func seedFile(t *testing.T, seed []byte) string {
	t.Helper()
	return writeFile(t, filepath.Join(t.TempDir(), "seed"), seed)
}

func TestNKeys(t *testing.T) {
	t.Parallel()
	user, stranger, account := createKey(t, nkeys.CreateUser), createKey(t, nkeys.CreateUser), createKey(t, nkeys.CreateAccount)
	url, _ := users(t, user)
	right := seedFile(t, seedOf(t, user))
	open(t, Server{URL: url, NKey: right})
	open(t, Server{URL: url, NKey: seedFile(t, append(seedOf(t, user), '\n'))})
	for name, c := range map[string]struct {
		text []byte
		want []string
	}{
		"unknown":       {seedOf(t, stranger), []string{"Authorization", "add its public key"}},
		"of an account": {seedOf(t, account), []string{"does not hold the NKey seed of a user", "begins with SU"}},
		"damaged":       {append(seedOf(t, user)[:50], "AAAAAAAA"...), []string{"does not hold the NKey seed of a user"}},
		"empty":         {nil, []string{"does not hold the NKey seed of a user"}},
	} {
		path := seedFile(t, c.text)
		refusals(t, refusal{name: name, to: Server{URL: url, NKey: path}, want: append(c.want, "MILLRACE_NATS_NKEY", path)})
	}
	refusals(t, refusal{name: "no NKeys there", to: Server{URL: natstest.Plain(t, server.Options{}).ClientURL(), NKey: right},
		want: []string{"the server does not accept the user whose seed is in", "MILLRACE_NATS_NKEY"}})
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
	url, _ := users(t, user, other)
	path := seedFile(t, seedOf(t, user))
	w := open(t, Server{URL: url, NKey: path})
	writeFile(t, path, seedOf(t, other))
	natstest.OK(t, w.ForceReconnect())
	w.log.Await(t, "the server does not accept the user whose seed is in "+path)
	w.log.Await(t, "restart the worker")
}

// TestCredentialsThatExpireWhileRunning shows that the worker keeps running after the server closes its connection.
// It continues once the file has new credentials.
func TestCredentialsThatExpireWhileRunning(t *testing.T) {
	t.Parallel()
	o := newOperators(t)
	var path string
	var w *worker
	// On a slow machine, connecting may take longer than the credentials are valid.
	for life := 2 * time.Second; w == nil || w.Conn == nil; life *= 2 {
		path = o.file("worker", o.credentials("brief", time.Now().Add(life), o.account))
		var err error
		if w, err = dial(t, Server{URL: o.url, Creds: path}); err != nil && life > natstest.Patience {
			t.Fatal(err)
		}
	}
	for _, text := range []string{
		"disconnected from NATS, reconnecting", "not connected to NATS, trying again", "expired at",
		"they take effect with the next connection",
	} {
		w.log.Await(t, text)
	}
	if w.IsClosed() {
		t.Fatal("the client has given up")
	}
	replace(t, o.file("fresh", o.credentials("fresh", time.Now().Add(time.Hour), o.account)), path)
	w.awaitReconnected(t)
}

// TestAUserRemovedWhileRunning shows that the server closes the worker's connection and refuses later ones.
func TestAUserRemovedWhileRunning(t *testing.T) {
	t.Parallel()
	user, other := createKey(t, nkeys.CreateUser), createKey(t, nkeys.CreateUser)
	url, reload := users(t, user)
	path := seedFile(t, seedOf(t, user))
	w := open(t, Server{URL: url, NKey: path})
	reload(other)
	w.log.Await(t, "not connected to NATS, trying again")
	w.log.Await(t, "the server does not accept the user whose seed is in "+path)
	reload(user)
	w.awaitReconnected(t)
	if w.log.Has("NATS connection") {
		t.Error("the error of each attempt is logged")
	}
}
