package natsconn

import (
	"bytes"
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
