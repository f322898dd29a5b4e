package config_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"millrace/internal/config"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

func TestPrint(t *testing.T) {
	c := good(t, map[string]string{"MILLRACE_LANES": "8", "MILLRACE_BATCH_BYTES": "65536"})
	var out bytes.Buffer
	if err := c.Print(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != len(c.Variables())+1 {
		t.Errorf("%d lines for %d variables", len(lines), len(c.Variables()))
	}
	rows := map[string][]string{}
	for _, line := range lines {
		cells := strings.Fields(line)
		rows[cells[0]] = cells[1:4]
	}
	for name, want := range map[string]string{
		"VARIABLE": "VALUE FROM DEFAULT", "MILLRACE_LANES": "8 set 4", "MILLRACE_BATCH_BYTES": "64KiB set 4MiB",
		"MILLRACE_LINGER": "2ms default 2ms", "MILLRACE_NATS_URL": "- default -", "MILLRACE_PROVISION": "true default false,",
	} {
		if got := strings.Join(rows[name], " "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestAValueThatCannotBeReadIsShownAsWritten(t *testing.T) {
	c, err := load(t, map[string]string{"MILLRACE_LANES": "many"})
	if err == nil {
		t.Fatal("Load takes a value that cannot be parsed")
	}
	for _, v := range c.Variables() {
		if v.Name == "MILLRACE_LANES" && v.Value != "many" {
			t.Errorf("the value is %q, want many", v.Value)
		}
	}
}

// TestSecretsAreMasked searches all output of this package for secrets: the table, the problems and the warnings.
func TestSecretsAreMasked(t *testing.T) {
	const seed = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
	for _, env := range []map[string]string{
		{"MILLRACE_NATS_URL": "nats://user:s3cret@a:4222,nats://s3cret@b:4222"},
		{"MILLRACE_NATS_URL": "user:s3cret@a:4222"},
		{"MILLRACE_NATS_URL": "nats://user:s3cret,s3cret@a:4222"},
		{"MILLRACE_NATS_URL": "http://user:s3c@s3cret@a:4222"},
		{"MILLRACE_NATS_URL": "nats://user:%zzs3cret@a:4222"},
		{"MILLRACE_NATS_URL": "wss://a:443/?token=s3cret"},
		{"MILLRACE_NATS_URL": "nats://a:4222", "MILLRACE_NATS_NKEY": seed},
		{"MILLRACE_NATS_URL": "nats://a:4222", "MILLRACE_NATS_CREDS": "-----BEGIN NATS USER JWT-----\ns3cret"},
		{"MILLRACE_NATS_URL": "nats://a:4222", "MILLRACE_NATS_TLS_KEY": "-----BEGIN PRIVATE KEY----- s3cret"},
		{"MILLRACE_NATS_CREDS": "eyJs3cret"},
	} {
		c, err := load(t, env)
		var out bytes.Buffer
		if err := c.Print(&out); err != nil {
			t.Fatal(err)
		}
		printed := out.String() + strings.Join(c.Warnings(), "\n") + errors.Join(err, errors.New("")).Error()
		if strings.Contains(printed, "s3cret") || strings.Contains(printed, seed) {
			t.Errorf("%v: a secret is in\n%s", env, printed)
		}
		if !strings.Contains(printed, "****") {
			t.Errorf("%v: no mask in\n%s", env, printed)
		}
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]config.Size{
		"0": 0, "1": 1, "4KiB": 4096, " 3 MiB ": 3 << 20, "2GiB": 2 << 30, "1TiB": 1 << 40, "1025": 1025,
		"4Ki": 4096, "4Mi": 4 << 20, "4Gi": 4 << 30, "4Ti": 4 << 40, "4k": 4000, "4M": 4_000_000, "4G": 4_000_000_000, "4T": 4_000_000_000_000,
	} {
		var got config.Size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
		var again config.Size
		if err := again.UnmarshalText([]byte(got.String())); err != nil || again != got {
			t.Errorf("%q is formatted as %q and parsed as %d, %v", text, got, again, err)
		}
	}
	const units = "not a whole number of bytes, KiB, MiB, GiB or TiB (Ki, Mi, Gi or Ti for short), or k, M, G or T (powers of 1000)"
	for text, want := range map[string]string{
		"": units, "-1": units, "+1": units, "MiB": units, "4 mib": units, "4MB": units, "4K": units, "4m": units, "1.5Mi": units, "1e6": units, "0x10": units,
		"9223372036854775808MB": units, "9223372036854775808": "more than 9223372036854775807 bytes", "8589934592GiB": "more than 9223372036854775807 bytes",
	} {
		var got config.Size
		if err := got.UnmarshalText([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("UnmarshalText parses %q as %d, %v; want %s", text, got, err, want)
		}
	}
}

// The table in docs/configuration.md is between these lines.
const (
	tableBegin = "<!-- table: made by go test ./internal/config -update -->\n"
	tableEnd   = "<!-- end of table -->\n"
	docFile    = "../../docs/configuration.md"
)

func TestDocumentation(t *testing.T) {
	c := good(t, nil)
	var table strings.Builder
	table.WriteString("\n| variable | default | takes | meaning |\n| --- | --- | --- | --- |\n")
	for _, v := range c.Variables() {
		def := "empty"
		if v.Default != "" {
			def = "`" + v.Default + "`"
		}
		table.WriteString("| `" + v.Name + "` | " + def + " | " + v.Form + " | " + v.Meaning + " |\n")
	}
	doc, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the lines around the table:\n%s%s", docFile, tableBegin, tableEnd)
	}
	want := before + tableBegin + table.String() + "\n" + tableEnd + after
	if want == string(doc) {
		return
	}
	if !*update {
		t.Fatalf("%s is out of date: run go test ./internal/config -update", docFile)
	}
	if err := os.WriteFile(docFile, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
