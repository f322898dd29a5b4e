package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/config"
)

// TestBadValues sets a few variables and checks that the error reports a problem of the named variable with the given
// text.
func TestBadValues(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing")
	server := "NATS_URL=nats://a:4222"
	for _, tc := range []struct {
		env      string // NAME=value pairs without the prefix, separated by spaces
		variable string
		what     string
	}{
		{"LANES=65", "LANES", "more than 64"},
		{"STREAM=A,,B", "STREAM", "a name in the list is empty"},
		{"STREAM=A.B", "STREAM", "a name may contain none of"},
		{"STREAM=A,B,A", "STREAM", "is named twice"},
		{"STREAM=IN-?", "STREAM", "may contain none of"},
		{"STREAM=*", "RESULT_STREAM", "is also an input stream by MILLRACE_STREAM, so the worker would feed itself"},
		{"STREAM=IN-*,RESULTS", "RESULT_STREAM", "is also an input stream"},
		{"STREAM=IN-* RESULT_STREAM=OUT-{2}", "RESULT_STREAM", "{2} stands for a * that a name or pattern of MILLRACE_STREAM doesn't have; use {0}"},
		{"STREAM=IN-*,B RESULT_STREAM=OUT-{1}", "RESULT_STREAM", "{1} stands for a *"},
		{"STREAM=IN-* RESULT_STREAM=OUT-{name}", "RESULT_STREAM", "has braces that are no placeholder"},
		{"STREAM=IN-* RESULT_STREAM=OUT-{1} RESULT_PREFIX=out", "RESULT_PREFIX", "has other placeholders than MILLRACE_RESULT_STREAM, so streams would share subjects"},
		{"STREAM=IN-* RESULT_PREFIX=out-{1}", "RESULT_PREFIX", "has other placeholders"},
		{"STREAM=IN-*-* RESULT_STREAM=OUT-{1} RESULT_PREFIX=results-{0}", "RESULT_PREFIX", "has other placeholders"},
		{"STREAM=IN-* DEADLETTER_PREFIX=dead-{1}", "DEADLETTER_PREFIX", "has other placeholders"},
		{"STREAM=IN-* DELIVERY=exclusive", "RESULT_STREAM", "results of several input streams can't be in one stream; set a template, such as RESULTS-{0}"},
		{"STREAM=*_* RESULT_STREAM=OUT-{1}", "RESULT_STREAM", "OUT-x_DEADLETTER is also an input stream"},
		{"STREAM=A,B SUBJECTS=a.> PROVISION=true", "SUBJECTS", "can't have the same subjects"},
		{"STREAM=A,B OPERATORS=neardup DELIVERY=exclusive", "STREAM", "has a state, which only a worker of a single stream keeps"},
		{"LANES=-1", "LANES", "less than 1"},
		{"LANES=4.5", "LANES", "not a whole number"},
		{"BATCH_BYTES=4095", "BATCH_BYTES", "less than 4KiB; set a size from 4KiB to 1GiB"},
		{"BATCH_BYTES=1025MiB", "BATCH_BYTES", "more than 1GiB"},
		{"BATCH_BYTES=99999999999GiB", "BATCH_BYTES", "more than 9223372036854775807 bytes"},
		{"BATCH_BYTES=4MB", "BATCH_BYTES", "not a whole number of bytes, KiB, MiB, GiB or TiB"},
		{"BATCH_PAYLOADS=1048577", "BATCH_PAYLOADS", "more than 1048576"},
		{"SCRATCH_LIMIT=2097151", "SCRATCH_LIMIT", "less than 2MiB"},
		{"LINGER=61s", "LINGER", "more than 1m"},
		{"LINGER=-1ms", "LINGER", "less than 0s"},
		{"LINGER=2", "LINGER", "not a duration"},
		{"LINGER=1s ACK_WAIT=1s", "LINGER", "not less than MILLRACE_ACK_WAIT"},
		{"DRAIN_TIMEOUT=0s", "DRAIN_TIMEOUT", "less than 1s"},
		{"BATCH_DEADLINE_MIN=99ms", "BATCH_DEADLINE_MIN", "less than 100ms"},
		{"BATCH_DEADLINE_MAX=61m", "BATCH_DEADLINE_MAX", "more than 1h"},
		{"BATCH_DEADLINE_MIN=3m", "BATCH_DEADLINE_MIN", "more than MILLRACE_BATCH_DEADLINE_MAX; set at most 2m0s"},
		{"BATCH_DEADLINE_MAX=5s", "BATCH_DEADLINE_MIN", "more than MILLRACE_BATCH_DEADLINE_MAX; set at most 5s"},
		{"MAX_DELIVER=0", "MAX_DELIVER", "less than 1"},
		{"MAX_ACK_PENDING=-1", "MAX_ACK_PENDING", "less than 0"},
		{"STREAM_RETENTION=workqueue", "STREAM_RETENTION", "set auto or limits"},
		{"STREAM_TRIM=yes", "STREAM_TRIM", "set auto, true or false"},
		{"STREAM_RETENTION=limits STREAM_TRIM=true", "STREAM_RETENTION", "MILLRACE_STREAM_TRIM=true removes processed ones; set only one of them"},
		{"STREAM_MAX_AGE=59s", "STREAM_MAX_AGE", "less than 1m0s; set at least 1m0s, or 0s for no limit"},
		{"RESULT_MAX_AGE=1s", "RESULT_MAX_AGE", "less than 1m0s"},
		{"DEADLETTER_MAX_AGE=-1s", "DEADLETTER_MAX_AGE", "less than 0s"},
		{"STREAM_MAX_BYTES=1MiB", "STREAM_MAX_BYTES", "less than 16MiB; set at least 16MiB, or 0 for no limit"},
		{"RESULT_MAX_BYTES=16777215", "RESULT_MAX_BYTES", "less than 16MiB"},
		{"DEADLETTER_MAX_BYTES=1", "DEADLETTER_MAX_BYTES", "less than 16MiB"},
		{"PROVISION_REPLICAS=6", "PROVISION_REPLICAS", "more than 5"},
		{"PROVISION_STORAGE=disk", "PROVISION_STORAGE", "set file or memory"},
		{"PROVISION=ja", "PROVISION", "neither true nor false"},
		{"FILTER=record.bytez>5", "FILTER", "line 1, column 7: undefined field 'bytez'; write a condition in CEL over record, crc32c, minhash"},
		{"FILTER=record.bytes", "FILTER", "the expression has the type int: write a condition"},
		{"RESULT_FORMAT=xml", "RESULT_FORMAT", "set json, binary, arrow or annotated"},
		{"ANNOTATE_AS=a.b", "ANNOTATE_AS", "not a name of 1 to 64 letters, digits and underscores"},
		{"ANNOTATE_AS=", "ANNOTATE_AS", "not a name of 1 to 64 letters, digits and underscores"},
		{"FRAMING=lines", "FRAMING", "not a known word; set none, newline_delimited, length_delimited, varint_length_delimited, arrow, json_array or auto"},
		{"DECOMPRESS=brotli", "DECOMPRESS", "not a known word; set none, zstd, gzip, lz4, snappy or auto"},
		{"RESULT_ENCODING=gzip", "RESULT_ENCODING", "not a known word; set none, zstd, lz4 or snappy"},
		{"RESULT_ENCODING=auto", "RESULT_ENCODING", "not a known word"},
		{"FIELD=a..b", "FIELD", `"a..b" has an empty name; set a name such as text, or a path such as doc.body`},
		{"FIELD_MISSING=null", "FIELD_MISSING", "has no effect without MILLRACE_FIELD; set both, or unset it"},
		{"FIELD_MISSING=skip", "FIELD_MISSING", "set reject or null"},
		{"KEEP_FIELDS=id,id", "KEEP_FIELDS", `"id" is named twice; name each field once`},
		{"KEEP_FIELDS=doc,doc.id", "KEEP_FIELDS", `one of "doc" and "doc.id" is part of the other; name only one of them`},
		{"KEEP_FIELDS=.", "KEEP_FIELDS", `"." has an empty name`},
		{"KEEP_FIELDS=id RESULT_FORMAT=binary", "KEEP_FIELDS", "set MILLRACE_RESULT_FORMAT=json or arrow, or unset it"},
		{"KEEP_FIELDS=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31", "KEEP_FIELDS", "names 31 fields; name at most 30"},
		{"FRAME_RECORDS=0", "FRAME_RECORDS", "less than 1; set a whole number from 1 to 16777216"},
		{"FRAME_RECORDS=16777217", "FRAME_RECORDS", "more than 16777216"},
		{"FRAME_BYTES=4095", "FRAME_BYTES", "less than 4KiB; set a size from 4KiB to 4095MiB"},
		{"FRAME_BYTES=4GiB", "FRAME_BYTES", "more than 4095MiB"},
		{"DEVICE=GPU", "DEVICE", "set auto, cuda or host"},
		{"LOG_FORMAT=tint", "LOG_FORMAT", "set auto, text or json"},
		{"LOG_LEVEL=info+1", "LOG_LEVEL", "set debug, info, warn or error"},
		{"OPERATORS=", "OPERATORS", "empty"},
		{"DATA_DIR=", "DATA_DIR", "empty"},

		{"SUBJECTS=", "SUBJECTS", "empty"},
		{"SUBJECTS=a,,b", "SUBJECTS", "a subject in the list is empty"},
		{"SUBJECTS=a..b", "SUBJECTS", "empty token"},
		{"SUBJECTS=a.>.b", "SUBJECTS", "may be only the last token"},
		{"SUBJECTS=a.b*", "SUBJECTS", "a whole token"},
		{"SUBJECTS=$JS.API.>", "SUBJECTS", "the server reserves subjects"},
		{"SUBJECTS=a.*,a.b", "SUBJECTS", "match the same subjects"},
		{"SUBJECTS=>", "RESULT_PREFIX", "feed itself"},
		{"SUBJECTS=>", "DEADLETTER_PREFIX", "feed itself"},
		{"SUBJECTS=*.a", "RESULT_PREFIX", "feed itself"},
		{"SUBJECTS=results", "RESULT_PREFIX", "feed itself"},
		{"SUBJECTS=results.v2.> RESULT_PREFIX=results.v2", "RESULT_PREFIX", "feed itself"},
		{"RESULT_PREFIX=ingest.done", "RESULT_PREFIX", "feed itself"},
		{"RESULT_PREFIX=results.*", "RESULT_PREFIX", "no wildcards"},
		{"RESULT_PREFIX=", "RESULT_PREFIX", "empty"},
		{"DEADLETTER_PREFIX=a..b", "DEADLETTER_PREFIX", "empty token"},
		{"DEADLETTER_PREFIX=results", "DEADLETTER_PREFIX", "share subjects"},
		{"DEADLETTER_PREFIX=results.dead", "DEADLETTER_PREFIX", "share subjects"},
		{"RESULT_PREFIX=deadletter.not", "DEADLETTER_PREFIX", "share subjects"},
		{"COMMIT_PREFIX=", "COMMIT_PREFIX", "empty"},
		{"COMMIT_PREFIX=a.>", "COMMIT_PREFIX", "no wildcards; set subject tokens without wildcards, like commits"},
		{"COMMIT_PREFIX=a..b", "COMMIT_PREFIX", "empty token"},
		{"COMMIT_PREFIX=results.c DELIVERY=exclusive", "COMMIT_PREFIX", "commit markers and results would share subjects, since MILLRACE_RESULT_PREFIX is results"},
		{"COMMIT_PREFIX=deadletter DELIVERY=exclusive", "COMMIT_PREFIX", "commit markers and dead letters would share subjects, since MILLRACE_DEADLETTER_PREFIX"},
		{"RESULT_PREFIX=commits.not DELIVERY=exclusive", "COMMIT_PREFIX", "share subjects"},
		{"SUBJECTS=commits.> DELIVERY=exclusive EXACTLY_ONCE=required", "COMMIT_PREFIX", "feed itself; set another prefix"},
		{"SUBJECTS=> DELIVERY=exclusive", "COMMIT_PREFIX", "feed itself"},
		{"EXACTLY_ONCE=yes", "EXACTLY_ONCE", "not a known word; set auto, required or off"},
		{"EXACTLY_ONCE=required", "EXACTLY_ONCE", "shared delivery can't store results exactly once; set MILLRACE_DELIVERY=exclusive, or set auto"},
		{"RESULT_IDS=no", "RESULT_IDS", "neither true nor false"},
		{"RESULT_IDS=false", "RESULT_IDS", "set MILLRACE_DELIVERY=exclusive, or set true"},
		{"RESULT_IDS=false DELIVERY=exclusive EXACTLY_ONCE=off", "RESULT_IDS", "set MILLRACE_EXACTLY_ONCE=auto or required, or set true"},
		{"STREAM=a.b", "STREAM", "a name may contain none of"},
		{"CONSUMER=a/b", "CONSUMER", "a name may contain none of"},
		{"CONSUMER=", "CONSUMER", "empty"},
		{"RESULT_STREAM=a>", "RESULT_STREAM", "a name may contain none of"},
		{"RESULT_STREAM=INGEST", "RESULT_STREAM", "the same as MILLRACE_STREAM"},

		{"NATS_URL=http://a:4222", "NATS_URL", "not with http://"},
		{"NATS_URL=nats://", "NATS_URL", "no host"},
		{"NATS_URL=a", "NATS_URL", "not host:port"},
		{"NATS_URL=nats://ann:a/b@c:4222", "NATS_URL", "percent-encode the special characters"},
		{"NATS_URL=nats://ann:a#b@c:4222", "NATS_URL", "percent-encode the special characters"},
		{"NATS_URL=nats://ann:a?b@c:4222", "NATS_URL", "percent-encode the special characters"},
		{"NATS_URL=nats://ann:a%b@c:4222", "NATS_URL", "percent-encode the special characters"},
		{"NATS_URL=nats://ann:a,b@c:4222", "NATS_URL", "percent-encode the special characters"},
		{"NATS_URL=nats://ann:a[b@c:4222", "NATS_URL", "percent-encode the special characters"},
		{"NATS_URL=nats://ann:1/b@c:4222", "NATS_URL", "percent-encode the special characters"},
		{"NATS_URL=nats://token/b@c:4222", "NATS_URL", "percent-encode the special characters"},
		{"NATS_URL=nats://token?b@c:4222", "NATS_URL", "percent-encode the special characters"},
		{"NATS_URL=nats://token#b@c:4222", "NATS_URL", "percent-encode the special characters"},
		{"NATS_URL=ann:a/b@c:4222", "NATS_URL", "percent-encode the special characters"},
		{"NATS_URL=ann:a%b@c:4222", "NATS_URL", "percent-encode the special characters"},
		{server + " NATS_JS_DOMAIN=a.b", "NATS_JS_DOMAIN", "a domain may contain none of"},
		{server + " NATS_JS_DOMAIN=a\tb", "NATS_JS_DOMAIN", "a domain may contain none of"},
		{server + " NATS_JS_PREFIX=a.>", "NATS_JS_PREFIX", "a prefix may contain no wildcards"},
		{server + " NATS_JS_PREFIX=a.", "NATS_JS_PREFIX", "empty token"},
		{server + " NATS_JS_DOMAIN=a NATS_JS_PREFIX=b", "NATS_JS_PREFIX", "MILLRACE_NATS_JS_DOMAIN is set too; unset one of them"},
		{"NATS_URL=a:0", "NATS_URL", "a port is a number from 1 to 65535"},
		{"NATS_URL=nats://a:65536", "NATS_URL", "a port is a number from 1 to 65535"},
		{"NATS_URL=nats://a:4222,", "NATS_URL", "an address in the list is empty"},
		{"NATS_URL=nats://a:4222,ws://b:80", "NATS_URL", "mixed"},
		{server + " NATS_CREDS=" + missing, "NATS_CREDS", "cannot be read: no such file or directory"},
		{server + " NATS_TLS_CA=" + dir, "NATS_TLS_CA", "is a directory"},
		{server + " NATS_TLS_CERT=" + file, "NATS_TLS_CERT", "has no effect without MILLRACE_NATS_TLS_KEY"},
		{server + " NATS_TLS_KEY=" + file, "NATS_TLS_KEY", "has no effect without MILLRACE_NATS_TLS_CERT"},
		{server + " NATS_NKEY=" + file + " NATS_CREDS=" + file, "NATS_NKEY", "MILLRACE_NATS_CREDS is set too; unset one of them"},

		{"DEVICES=", "DEVICES", "empty"},
		{"DEVICES=0,0", "DEVICES", "named twice"},
		{"DEVICES=all,0", "DEVICES", "all excludes other entries"},
		{"DEVICES=-1", "DEVICES", "neither the ordinal"},
		{"DEVICES=GPU-1234", "DEVICES", "neither the ordinal"},
		{"HTTP_ADDR=9464", "HTTP_ADDR", "not host:port"},
		{"HTTP_ADDR=:http", "HTTP_ADDR", "a port is a number from 0 to 65535"},
		{"HTTP_ADDR=a/b:80", "HTTP_ADDR", "not host:port"},
		{"DEBUG_ADDR=:9464", "DEBUG_ADDR", "the same as MILLRACE_HTTP_ADDR"},
		{"DEBUG_ADDR=127.0.0.1:9464", "DEBUG_ADDR", "the same as MILLRACE_HTTP_ADDR"},
	} {
		t.Run(tc.env, func(t *testing.T) {
			env := map[string]string{}
			for pair := range strings.SplitSeq(tc.env, " ") {
				name, value, _ := strings.Cut(pair, "=")
				env["MILLRACE_"+name] = value
			}
			_, err := load(t, env)
			var all *config.Error
			if !errors.As(err, &all) {
				t.Fatalf("Load returns no *Error: %v", err)
			}
			for _, p := range all.Problems {
				if p.Variable == "MILLRACE_"+tc.variable && strings.Contains(p.String(), tc.what) {
					return
				}
			}
			t.Errorf("no problem of %s with %q in:\n%v", tc.variable, tc.what, err)
		})
	}
}

func TestGoodValues(t *testing.T) {
	for _, env := range []map[string]string{
		{"LANES": "1", "BATCH_BYTES": "4KiB", "BATCH_PAYLOADS": "1", "LINGER": "0s", "SCRATCH_LIMIT": "2MiB"},
		{"BATCH_DEADLINE_MIN": "100ms", "BATCH_DEADLINE_MAX": "100ms"}, {"BATCH_DEADLINE_MIN": "1h", "BATCH_DEADLINE_MAX": "1h"},
		{"LANES": "64", "BATCH_BYTES": "1GiB", "BATCH_PAYLOADS": "1048576", "LINGER": "1m", "ACK_WAIT": "2m"},
		{"NATS_URL": "nats://u:p@a:4222,tls://b,c:4222,[::1]:4222"},
		{"NATS_URL": "wss://a/path,ws://b:80"},
		{"SUBJECTS": "c.*.a,b.>,résumé.>", "RESULT_PREFIX": "a", "DEADLETTER_PREFIX": "b2.d"},
		{"SUBJECTS": "a.b,a.b.c,a.*.c.d"}, // some filters have the same beginning, but no two overlap
		{"DEVICES": "0,1,15"},
		{"HTTP_ADDR": "", "DEBUG_ADDR": "[::1]:6060"},
		{"HTTP_ADDR": "127.0.0.1:0", "DEBUG_ADDR": "127.0.0.1:0"},
		{"STREAM": "A-b_1", "RESULT_STREAM": "A-b_1", "NATS_URL": "nats://a:4222"},
		{"MILLRACE_NATS_URL": ""},
		{"DELIVERY": "exclusive", "EXACTLY_ONCE": "required", "RESULT_IDS": "false", "COMMIT_PREFIX": "a.b"},
		{"DELIVERY": "exclusive", "EXACTLY_ONCE": "off", "SUBJECTS": "commits.>"}, {"EXACTLY_ONCE": "off"},
		{"SUBJECTS": "commits.>"}, {"RESULT_PREFIX": "commits"}, // with shared delivery there are no commit markers
	} {
		prefixed := map[string]string{}
		for name, value := range env {
			prefixed["MILLRACE_"+strings.TrimPrefix(name, "MILLRACE_")] = value
		}
		if _, err := load(t, prefixed); err != nil {
			t.Errorf("%v: %v", env, err)
		}
	}
}

func TestWarnings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"MILLRACE_NATS_CREDS": file}, "MILLRACE_NATS_CREDS has no effect"},
		{map[string]string{"MILLRACE_NATS_JS_DOMAIN": "hub"}, "MILLRACE_NATS_JS_DOMAIN has no effect"},
		{map[string]string{"MILLRACE_NATS_JS_PREFIX": "$JS.hub.API"}, "MILLRACE_NATS_JS_PREFIX has no effect"},
		{map[string]string{"MILLRACE_NATS_TLS_FIRST": "true"}, "MILLRACE_NATS_TLS_FIRST has no effect"},
		{map[string]string{"MILLRACE_DEVICE": "host", "MILLRACE_DEVICES": "0"}, "MILLRACE_DEVICES has no effect"},
		{map[string]string{"MILLRACE_DEBUG_ADDR": "0.0.0.0:6060"}, "MILLRACE_DEBUG_ADDR is open to every machine"},
		{map[string]string{"MILLRACE_MAX_ACK_PENDING": "10"}, "no batch can reach that count"},
	} {
		c := good(t, tc.env)
		if w := c.Warnings(); len(w) != 1 || !strings.Contains(w[0], tc.want) {
			t.Errorf("%v: warnings are %q, want one with %q", tc.env, w, tc.want)
		}
	}
}

// TestDebugPagesStayOnThisMachine checks that debug pages are off by default, and that an address without a host is
// served only on 127.0.0.1.
func TestDebugPagesStayOnThisMachine(t *testing.T) {
	for set, want := range map[string]string{
		"": "", ":6060": "127.0.0.1:6060", ":0": "127.0.0.1:0", "127.0.0.1:6060": "127.0.0.1:6060", "[::1]:6060": "[::1]:6060", "localhost:6060": "localhost:6060",
	} {
		c := good(t, map[string]string{"MILLRACE_DEBUG_ADDR": set, "MILLRACE_HTTP_ADDR": ""})
		if c.DebugAddr != want || len(c.Warnings()) != 0 {
			t.Errorf("%q: %q with warnings %q, want %q", set, c.DebugAddr, c.Warnings(), want)
		}
	}
}
