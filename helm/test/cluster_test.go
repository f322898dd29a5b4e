//go:build e2e

package test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chartutil"
	"k8s.io/client-go/rest"
)

// cluster is a Kubernetes API server with its etcd, without kubelet, scheduler and controllers. It accepts, validates
// and stores objects like a real cluster, but nothing acts on them.
type cluster struct {
	url    string
	token  string
	caFile string

	version *chartutil.KubeVersion // version that the server emulates
}

// binaries returns the folder with the API servers and etcd, which make chart-e2e builds.
func binaries(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("MILLRACE_CLUSTER")
	if dir == "" {
		t.Fatal("MILLRACE_CLUSTER does not name the folder with the API servers and etcd: run make chart-e2e, which builds them")
	}
	return dir
}

// startPatience limits the start of etcd and the API server, including the creation of their storage.
const startPatience = 2 * time.Minute

// startCluster starts an API server with its etcd until the test ends. It adds flags to the required flags.
func startCluster(t *testing.T, server string, flags ...string) *cluster {
	t.Helper()
	dir, bin := t.TempDir(), binaries(t)
	client, peer, port := localPort(t), localPort(t), fmt.Sprint(freePort(t))
	etcd := "http://" + client
	start(t, filepath.Join(bin, "etcd"), "--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer, "--initial-cluster", "default=http://"+peer, "--log-level", "warn")

	c := &cluster{url: "https://127.0.0.1:" + port, token: rand.Text(), caFile: filepath.Join(dir, "apiserver.crt")}
	key, tokens := filepath.Join(dir, "accounts.pem"), filepath.Join(dir, "tokens.csv")
	writeKey(t, key)
	write(t, tokens, c.token+`,installer,1,"system:masters"`+"\n")
	start(t, filepath.Join(bin, server), append([]string{"--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--secure-port", port,
		"--cert-dir", dir, "--token-auth-file", tokens, "--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.0.0.0/24",
		"--service-account-issuer", c.url, "--service-account-key-file", key, "--service-account-signing-key-file", key}, flags...)...)
	c.await(t)
	return c
}

// config returns the client configuration for the server.
func (c *cluster) config() *rest.Config {
	return &rest.Config{Host: c.url, BearerToken: c.token, TLSClientConfig: rest.TLSClientConfig{CAFile: c.caFile}, QPS: 1000, Burst: 1000}
}

// await waits until the server accepts requests.
func (c *cluster) await(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startPatience)
	defer cancel()
	eventually(ctx, t, "the API server to be ready", func() error {
		if _, err := os.Stat(c.caFile); err != nil {
			return err
		}
		config := c.config()
		config.GroupVersion, config.NegotiatedSerializer = &coreVersion, plainCodecs
		client, err := rest.UnversionedRESTClientFor(config)
		if err != nil {
			return err
		}
		return client.Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

func eventually(ctx context.Context, t *testing.T, what string, ask func() error) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited for %s: %v: %v", what, ctx.Err(), err)
		}
	}
}

// start runs a program until the test ends, and shows its output if the test fails.
func start(t *testing.T, program string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), filepath.Base(program)+".log"))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program, args...) // without the test's context, because the API server must end before its etcd
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill() // it may have exited
		_ = command.Wait()         // always an error after Kill
		if t.Failed() {
			t.Logf("the end of the output of %s:\n%s", filepath.Base(program), tail(log.Name()))
		}
	})
}

func tail(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(text), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

func localPort(t *testing.T) string { return fmt.Sprintf("127.0.0.1:%d", freePort(t)) }

// writeKey writes a key with which the server signs ServiceAccount tokens.
func writeKey(t *testing.T, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, name, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// moduleDir returns the source folder of a module in go.mod, or of another module with the same version.
func moduleDir(t *testing.T, module, version string) string {
	t.Helper()
	args := []string{"list", "-m", "-f", "{{.Dir}}", module}
	if version != "" {
		args = []string{"mod", "download", "-json", fmt.Sprintf("%s@%s", module, version)}
	}
	out, err := exec.CommandContext(t.Context(), "go", args...).Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	if version == "" {
		return strings.TrimSpace(string(out))
	}
	return dirOfDownload(t, out)
}
