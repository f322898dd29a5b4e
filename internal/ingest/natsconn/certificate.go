package natsconn

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// certificates reads all certificates of a PEM file, or reports why it can't.
func certificates(variable, path string) ([]*x509.Certificate, *fileFinding) {
	data, bad := read(variable, path)
	if bad != nil {
		return nil, bad
	}
	f := &fileFinding{Variable: variable, Path: path, Wrong: true}
	var list []*x509.Certificate
	others, blocks := "", 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		blocks++
		if block.Type != "CERTIFICATE" {
			others = block.Type
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			f.Found = fmt.Sprintf("has a certificate, number %d, that cannot be read: %v", len(list)+1, err)
			f.Advice = "get it again from its issuer"
			return nil, f
		}
		list = append(list, c)
	}
	switch {
	case len(list) > 0:
		return list, nil
	case blocks == 0:
		f.Found, f.Advice = "is not PEM", "convert it (openssl x509 -inform der), or name a file with -----BEGIN CERTIFICATE-----"
	default:
		f.Found, f.Advice = "holds no certificate but "+others, "name the file with -----BEGIN CERTIFICATE-----"
	}
	return nil, f
}

// authorities is the path of a file with certificates of authorities.
type authorities string

// inspect checks the file. One valid certificate is enough: others may be about to expire.
func (a authorities) inspect(now time.Time) *fileFinding {
	list, bad := certificates(caVariable, string(a))
	if bad != nil {
		return bad
	}
	counts := slices.ContainsFunc(list, func(c *x509.Certificate) bool { return !now.Before(c.NotBefore) && now.Before(c.NotAfter) })
	f := &fileFinding{Variable: caVariable, Path: string(a), Found: fmt.Sprintf("holds %d certificates of authorities", len(list))}
	if len(list) == 1 || !counts {
		f.Found = "holds the authority " + list[0].Subject.String()
		lifetime{list[0].NotBefore, list[0].NotAfter}.judge(f, now, "write the authority's new certificate to the file")
	}
	return f
}

// pool reads the authorities, if one of them counts now.
func (a authorities) pool() (*x509.CertPool, error) {
	if bad := a.inspect(time.Now()); bad.Wrong {
		return nil, bad
	}
	data, err := os.ReadFile(string(a))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(data)
	return pool, nil
}

// pair is the paths of the client's certificate and its key.
type pair struct{ cert, key string }

// inspect checks both files.
func (p pair) inspect(now time.Time) []*fileFinding {
	list, bad := certificates(certVariable, p.cert)
	if bad != nil {
		return append([]*fileFinding{bad}, onlyBad(inspectKey(p.key))...)
	}
	f := &fileFinding{Variable: certVariable, Path: p.cert, Found: "is of " + list[0].Subject.String()}
	lifetime{list[0].NotBefore, list[0].NotAfter}.judge(f, now, "have a new certificate issued and write it to the file; it takes effect with the next connection")
	if !f.Wrong && !forClients(list[0]) {
		f.Found += ", and its extended key usage is not for clients"
		f.Advice = "have one issued with clientAuth, because a server that verifies certificates refuses this one"
	}
	k := inspectKey(p.key)
	if k.Wrong {
		return []*fileFinding{f, k}
	}
	if _, err := tls.LoadX509KeyPair(p.cert, p.key); err != nil {
		k.Wrong, k.Found, k.Advice = true, "does not match "+p.cert+": "+err.Error(), "name the key that the certificate was issued for"
	}
	return []*fileFinding{f, k}
}

// load reads the pair, if it can be used now.
func (p pair) load() (tls.Certificate, error) {
	for _, finding := range p.inspect(time.Now()) {
		if finding.Wrong {
			return tls.Certificate{}, finding
		}
	}
	return tls.LoadX509KeyPair(p.cert, p.key)
}

func onlyBad(f *fileFinding) []*fileFinding {
	if f.Wrong {
		return []*fileFinding{f}
	}
	return nil
}

// forClients reports whether a server that verifies clients accepts the certificate.
func forClients(c *x509.Certificate) bool {
	return len(c.ExtKeyUsage) == 0 || slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth) || slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny)
}

// inspectKey checks whether a file has a usable private key.
func inspectKey(path string) *fileFinding {
	data, bad := read(keyVariable, path)
	if bad != nil {
		return bad
	}
	f := &fileFinding{Variable: keyVariable, Path: path, Found: "is a private key"}
	kinds := []string{}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		switch {
		case block.Type == "ENCRYPTED PRIVATE KEY", strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
			f.Wrong, f.Found, f.Advice = true, "is an encrypted key, and the worker has no passphrase for it", "store it decrypted where only the worker can read it"
			return f
		case block.Type == "PRIVATE KEY", strings.HasSuffix(block.Type, " PRIVATE KEY"):
			return f
		}
		kinds = append(kinds, block.Type)
	}
	f.Wrong, f.Advice = true, "name the file with -----BEGIN PRIVATE KEY-----"
	if f.Found = "is not PEM"; len(kinds) > 0 {
		f.Found = "holds no private key but " + strings.Join(kinds, ", ")
	}
	return f
}
