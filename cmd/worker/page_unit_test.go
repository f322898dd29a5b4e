package main

import (
	"slices"
	"strings"
	"testing"

	"millrace/internal/config"
	"millrace/internal/device"
	"millrace/internal/telemetry"
)

// TestFeedNamesCommandsAndNoCredentials checks the commands on the page for several server addresses.
func TestFeedNamesCommandsAndNoCredentials(t *testing.T) {
	for _, c := range []struct {
		name, url, creds string
		set              map[string]string
		send, follow     string
		login            []string
	}{
		{name: "embedded", url: "nats://127.0.0.1:4222", send: `echo 'some text' | worker send`, follow: "worker results --follow"},
		{name: "a cluster", url: "nats://a:4222,tls://b:4222",
			send:   `echo 'some text' | MILLRACE_NATS_URL=nats://a:4222,tls://b:4222 worker send`,
			follow: "MILLRACE_NATS_URL=nats://a:4222,tls://b:4222 worker results --follow"},
		{name: "a password", url: "nats://planted-user:planted-password@n:4222,nats://planted-token@m:4222", creds: "/run/planted-file",
			send: `echo 'some text' | worker send`, follow: "worker results --follow",
			login: []string{"MILLRACE_NATS_CREDS", "MILLRACE_NATS_URL"}},
		{name: "other streams", url: "nats://127.0.0.1:4222",
			set:    map[string]string{"MILLRACE_STREAM": "ORDERS", "MILLRACE_SUBJECTS": "orders.>,more.*", "MILLRACE_RESULT_PREFIX": "it's", "MILLRACE_OPERATOR_PATH": "/my operators"},
			send:   `echo 'some text' | MILLRACE_STREAM=ORDERS MILLRACE_SUBJECTS='orders.>,more.*' worker send`,
			follow: `MILLRACE_SUBJECTS='orders.>,more.*' MILLRACE_RESULT_PREFIX='it'\''s' MILLRACE_OPERATOR_PATH='/my operators' worker results --follow`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, value := range c.set {
				t.Setenv(name, value)
			}
			cfg, err := config.Load(nil)
			if cfg == nil {
				t.Fatal(err)
			}
			cfg.NATS.Creds = c.creds
			f := feedOf(cfg, c.url, "worker")
			if f.Send != c.send || f.Follow != c.follow || !slices.Equal(f.Login, c.login) {
				t.Errorf("%+v", f)
			}
			if all := strings.Join([]string{f.Server, f.Send, f.Follow, strings.Join(f.Login, " ")}, " "); strings.Contains(all, "planted") {
				t.Errorf("the page shows a credential: %s", all)
			}
		})
	}
}

// kindOf is a device of the given kind.
type kindOf struct {
	device.Device
	kind string
}

func (k kindOf) Info() device.Info { return device.Info{Kind: k.kind} }

func TestPageKnowsWhyTheCPUComputes(t *testing.T) {
	for _, c := range []struct {
		setting, kind string
		want          telemetry.CPU
	}{{"auto", "cuda", telemetry.NotOnCPU}, {"auto", "host", telemetry.CPUFallback}, {"host", "host", telemetry.CPUChosen}} {
		a := &app{cfg: &config.Config{Device: c.setting}, devices: []device.Device{kindOf{kind: c.kind}}}
		if got := a.onCPU(); got != c.want {
			t.Errorf("MILLRACE_DEVICE=%s and a device of kind %s: %q, want %q", c.setting, c.kind, got, c.want)
		}
	}
}

func TestPageShortensPartitions(t *testing.T) {
	t.Parallel()
	var odd []int
	for n := range 500 {
		odd = append(odd, 2*n+1)
	}
	for want, numbers := range map[string][]int{"": nil, "4": {4}, "0-2, 5, 7-8": {0, 1, 2, 5, 7, 8}} {
		if got := ranges(numbers); got != want {
			t.Errorf("%v are %q, want %q", numbers, got, want)
		}
	}
	if got := ranges(odd); !strings.HasPrefix(got, "1, 3, 5, ") || !strings.HasSuffix(got, " ...") || len(got) > maxPartitionText+20 {
		t.Errorf("many partitions are %q", got)
	}
}
