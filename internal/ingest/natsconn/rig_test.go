package natsconn

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"millrace/internal/ingest/natstest"
)

type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // path of its certificate in PEM form
}

// span is a period of validity. Both times are relative to now.
type span struct{ from, until time.Duration }

var (
	current = span{-time.Hour, time.Hour}
	past    = span{-2 * time.Hour, -time.Hour}
	future  = span{time.Hour, 2 * time.Hour}
)

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir(), key: newKey(t)}
	template := certificate(name, current)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	a.cert = a.sign(template, template, a.key)
	a.file = a.write("ca.pem", "CERTIFICATE", a.cert.Raw)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	return natstest.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
}

func certificate(name string, counts span) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(counts.from), NotAfter: time.Now().Add(counts.until),
	}
}

func (a *authority) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	raw := natstest.Must(x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key))(a.t)
	return natstest.Must(x509.ParseCertificate(raw))(a.t)
}

func (a *authority) write(name, kind string, raw []byte) string {
	a.t.Helper()
	return writeFile(a.t, filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}))
}

// issue writes a certificate and its key. host is a name or an IP address, which only a server's certificate needs.
func (a *authority) issue(name string, counts span, usage x509.ExtKeyUsage, host string) (cert, key string) {
	a.t.Helper()
	template, k := certificate(name, counts), newKey(a.t)
	template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else if host != "" {
		template.DNSNames = []string{host}
	}
	raw := natstest.Must(x509.MarshalPKCS8PrivateKey(k))(a.t)
	return a.write(name+".pem", "CERTIFICATE", a.sign(template, a.cert, k).Raw), a.write(name+".key", "PRIVATE KEY", raw)
}

func (a *authority) client(name string, counts span) (cert, key string) {
	a.t.Helper()
	return a.issue(name, counts, x509.ExtKeyUsageClientAuth, "")
}

// secureServer starts a server with a certificate for a host, and returns its address. It requires client certificates if verify is
// set.
func (a *authority) secureServer(counts span, host string, verify bool, o server.Options) string {
	a.t.Helper()
	cert, key := a.issue("server-"+host, counts, x509.ExtKeyUsageServerAuth, host)
	pair := natstest.Must(tls.LoadX509KeyPair(cert, key))(a.t)
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, MinVersion: tls.VersionTLS12}
	if verify {
		o.TLSVerify, o.TLSConfig.ClientAuth = true, tls.RequireAndVerifyClientCert
	}
	o.TLSTimeout = cmp.Or(o.TLSTimeout, natstest.Patience.Seconds())
	return natstest.Plain(a.t, o).Addr().String()
}

// local starts a server with a current certificate for its own address.
func (a *authority) local(o server.Options) string {
	a.t.Helper()
	return a.secureServer(current, "127.0.0.1", false, o)
}

func writeFile(t *testing.T, path string, data []byte) string {
	t.Helper()
	natstest.OK(t, os.WriteFile(path, data, 0o600))
	return path
}

// operators is a server whose users have JWTs, with the keys that sign them.
type operators struct {
	t       *testing.T
	url     string
	account nkeys.KeyPair
	dir     string
}

func newOperators(t *testing.T) *operators {
	t.Helper()
	operator, account := createKey(t, nkeys.CreateOperator), createKey(t, nkeys.CreateAccount)
	token := natstest.Must(jwt.NewAccountClaims(publicKey(t, account)).Encode(operator))(t)
	resolver := &server.MemAccResolver{}
	natstest.OK(t, resolver.Store(publicKey(t, account), token))
	s := natstest.Plain(t, server.Options{TrustedKeys: []string{publicKey(t, operator)}, AccountResolver: resolver})
	return &operators{t: t, url: s.ClientURL(), account: account, dir: t.TempDir()}
}

func createKey(t *testing.T, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	t.Helper()
	return natstest.Must(create())(t)
}

func publicKey(t *testing.T, key nkeys.KeyPair) string {
	t.Helper()
	return natstest.Must(key.PublicKey())(t)
}

func seedOf(t *testing.T, key nkeys.KeyPair) []byte {
	t.Helper()
	return bytes.Clone(natstest.Must(key.Seed())(t)) // the slice belongs to the key pair
}

// credentials returns a credentials file of a new user, signed by the account by.
func (o *operators) credentials(name string, expires time.Time, by nkeys.KeyPair) []byte {
	o.t.Helper()
	user := createKey(o.t, nkeys.CreateUser)
	claims := jwt.NewUserClaims(publicKey(o.t, user))
	claims.Name = name
	if !expires.IsZero() {
		claims.Expires = expires.Unix()
	}
	token := natstest.Must(claims.Encode(by))(o.t)
	return natstest.Must(jwt.FormatUserConfig(token, seedOf(o.t, user)))(o.t)
}

func (o *operators) file(name string, text []byte) string {
	o.t.Helper()
	return writeFile(o.t, filepath.Join(o.dir, name), text)
}

// worker is a connection with its log. The channel again gets a token after a reconnect.
type worker struct {
	*nats.Conn
	log   *natstest.Log
	again chan struct{}
}

func dial(t *testing.T, to Server) (*worker, error) {
	w := &worker{log: natstest.NewLog(t), again: make(chan struct{}, 1)}
	var err error
	w.Conn, err = Open(to, "test", w.log.Logger(), func() {
		select {
		case w.again <- struct{}{}:
		default: // no test waits for this reconnect
		}
	})
	if err == nil {
		t.Cleanup(w.Close)
	}
	return w, err
}

// open connects to a server, which must accept the connection.
func open(t *testing.T, to Server) *worker {
	t.Helper()
	w := natstest.Must(dial(t, to))(t)
	natstest.OK(t, w.Flush())
	return w
}

func (w *worker) awaitReconnected(t *testing.T) {
	t.Helper()
	select {
	case <-w.again:
	case <-time.After(natstest.Patience):
		t.Fatalf("no connection after %v", natstest.Patience)
	}
}

// refusal is a server that refuses a connection.
type refusal struct {
	name      string
	to        Server
	want      []string // parts of the error's text
	temporary bool     // whether a worker must try again
}

// refusals checks each case in a subtest.
func refusals(t *testing.T, cases ...refusal) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := dial(t, c.to)
			if err == nil {
				t.Fatal("connected")
			}
			wantParts(t, err.Error(), c.want...)
			if strings.Contains(err.Error(), "pass-") {
				t.Errorf("%q contains the password", err)
			}
			if got := !Permanent(err); got != c.temporary {
				t.Errorf("the error is temporary: %v, want %v: %v", got, c.temporary, err)
			}
		})
	}
}

func wantParts(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not say %q", text, part)
		}
	}
}
