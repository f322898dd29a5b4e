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
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func certificate(name string, counts span) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(counts.from), NotAfter: time.Now().Add(counts.until),
	}
}

func (a *authority) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	c, err := x509.ParseCertificate(raw)
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

func (a *authority) write(name, kind string, raw []byte) string {
	a.t.Helper()
	return writeFile(a.t, filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}))
}

// issue writes a certificate and its key. Only a server's certificate needs a host, which is a name or an IP address.
func (a *authority) issue(name string, counts span, usage x509.ExtKeyUsage, host string) (cert, key string) {
	a.t.Helper()
	template, k := certificate(name, counts), newKey(a.t)
	template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else if host != "" {
		template.DNSNames = []string{host}
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(name+".pem", "CERTIFICATE", a.sign(template, a.cert, k).Raw), a.write(name+".key", "PRIVATE KEY", raw)
}

func (a *authority) client(name string, counts span) (cert, key string) {
	a.t.Helper()
	return a.issue(name, counts, x509.ExtKeyUsageClientAuth, "")
}

// secureServer starts a server with a certificate for a host. It requires client certificates if verify is set.
func (a *authority) secureServer(counts span, host string, verify bool, o server.Options) *server.Server {
	a.t.Helper()
	cert, key := a.issue("server-"+host, counts, x509.ExtKeyUsageServerAuth, host)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		a.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, MinVersion: tls.VersionTLS12}
	if verify {
		o.TLSVerify, o.TLSConfig.ClientAuth = true, tls.RequireAndVerifyClientCert
	}
	o.TLSTimeout = cmp.Or(o.TLSTimeout, natstest.Patience.Seconds())
	return natstest.Plain(a.t, o)
}

func writeFile(t *testing.T, path string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// operators is a server whose users have JWTs, with the keys that sign them.
type operators struct {
	t       *testing.T
	server  *server.Server
	account nkeys.KeyPair
	dir     string
}

func newOperators(t *testing.T) *operators {
	t.Helper()
	operator, account := createKey(t, nkeys.CreateOperator), createKey(t, nkeys.CreateAccount)
	claims := jwt.NewAccountClaims(publicKey(t, account))
	token, err := claims.Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	resolver := &server.MemAccResolver{}
	if err := resolver.Store(publicKey(t, account), token); err != nil {
		t.Fatal(err)
	}
	s := natstest.Plain(t, server.Options{TrustedKeys: []string{publicKey(t, operator)}, AccountResolver: resolver})
	return &operators{t: t, server: s, account: account, dir: t.TempDir()}
}

func createKey(t *testing.T, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	t.Helper()
	key, err := create()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func publicKey(t *testing.T, key nkeys.KeyPair) string {
	t.Helper()
	public, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return public
}

func seedOf(t *testing.T, key nkeys.KeyPair) []byte {
	t.Helper()
	seed, err := key.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(seed) // the slice belongs to the key pair
}

// credentials returns a credentials file of a new user, signed by the account by. A nil account means the server's
// account.
func (o *operators) credentials(name string, expires time.Time, by nkeys.KeyPair) (text []byte, public string) {
	o.t.Helper()
	if by == nil {
		by = o.account
	}
	user := createKey(o.t, nkeys.CreateUser)
	claims := jwt.NewUserClaims(publicKey(o.t, user))
	claims.Name = name
	if !expires.IsZero() {
		claims.Expires = expires.Unix()
	}
	token, err := claims.Encode(by)
	if err != nil {
		o.t.Fatal(err)
	}
	text, err = jwt.FormatUserConfig(token, seedOf(o.t, user))
	if err != nil {
		o.t.Fatal(err)
	}
	return text, publicKey(o.t, user)
}

func (o *operators) file(name string, text []byte) string {
	o.t.Helper()
	return writeFile(o.t, filepath.Join(o.dir, name), text)
}

type reconnections chan struct{}

func (r reconnections) one() {
	select {
	case r <- struct{}{}:
	default: // no test waits for this reconnect
	}
}

func (r reconnections) await(t *testing.T) {
	t.Helper()
	select {
	case <-r:
	case <-time.After(natstest.Patience):
		t.Fatalf("no connection after %v", natstest.Patience)
	}
}
