package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/config"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/topology"
)

// setting matches a variable with a value in an error message's advice.
var setting = regexp.MustCompile(`\b(MILLRACE_[A-Z_]+)=([^\s,;()"'%]*)`)

// wrong returns the worker's error for a setting, or "" if the worker accepts it.
func wrong(t *testing.T, variable, value string) (why string) {
	t.Run(variable+"="+value, func(t *testing.T) { // t.Run restores the environment at its end
		t.Setenv(variable, value)
		c, err := config.Load(nil)
		if !slices.ContainsFunc(c.Variables(), func(v config.Variable) bool { return v.Name == variable }) {
			why = "there is no such variable"
		}
		var all *config.Error
		if errors.As(err, &all) {
			for _, p := range all.Problems {
				why += p.String()
			}
		}
	})
	return why
}

// TestAdvicesNameValuesThatWork checks every string of the program that contains a variable with a value.
func TestAdvicesNameValuesThatWork(t *testing.T) {
	// The program computes these values at run time. TestAdvicesFitWhatIsFound checks the first two. The third is the
	// worker's own address.
	computed := map[string]bool{"MILLRACE_ACK_WAIT": true, "MILLRACE_PARTITIONS": true, "MILLRACE_NATS_URL": true}
	read := 0
	for _, text := range texts(t) {
		advice := strings.ReplaceAll(text, "MILLRACE_RESULT_IDS=false has no effect", "")
		for _, found := range setting.FindAllStringSubmatch(advice, -1) {
			variable, value := found[1], strings.TrimRight(found[2], ".:")
			read++
			if value == "" || strings.HasSuffix(value, "//") {
				if !computed[variable] {
					t.Errorf("%q gives %s a value that no test tries", text, variable)
				}
			} else if why := wrong(t, variable, value); why != "" {
				t.Errorf("%q: %s", text, why)
			}
		}
	}
	if read < 20 {
		t.Errorf("only %d settings are found in the sources", read)
	}
}

// texts returns the string literals in the worker's source files.
func texts(t *testing.T) (all []string) {
	for _, dir := range []string{".", "../../internal/config", "../../internal/cliclient", "../../internal/ingest", "../../internal/memory", "../../internal/operator", "../../internal/frame"} {
		if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "natstest") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					text, err := strconv.Unquote(literal.Value)
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, text)
				}
				return true
			})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestAdvicesFitWhatIsFound creates consumers and streams with settings that the worker refuses. The advice names only
// values that the worker accepts.
func TestAdvicesFitWhatIsFound(t *testing.T) {
	r := natstest.New(t)
	want := topology.Topology{Stream: "INGEST", Subjects: []string{"ingest.>"}, Consumer: "millrace", ResultStream: "RESULTS", ResultPrefix: "results", DeadLetterPrefix: "deadletter",
		MaxDeliver: 5, AckWait: 30 * time.Second, Partitions: 8}
	advised := func(l topology.Topology) (all []string) {
		for _, f := range topology.Inspect(r.Ctx(), r.NC, l, topology.Use{Linger: time.Millisecond}) {
			for _, found := range setting.FindAllStringSubmatch(f.Advice, -1) {
				all = append(all, found[0])
				if why := wrong(t, found[1], found[2]); why != "" {
					t.Errorf("%v advises %q: %s", f, found[0], why)
				}
			}
		}
		return all
	}
	for _, wait := range []time.Duration{0, 999 * time.Millisecond, time.Second, time.Hour, time.Hour + time.Second} {
		r.Create(jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}})
		c := jetstream.ConsumerConfig{Durable: "millrace", FilterSubject: "ingest.>", AckPolicy: jetstream.AckExplicitPolicy, AckWait: wait}
		if wait == 0 {
			c.AckPolicy = jetstream.AckNonePolicy // only a consumer with AckNone has no ack wait
		}
		if _, err := r.JS.CreateConsumer(r.Ctx(), "INGEST", c); err != nil {
			t.Fatal(err)
		}
		named := slices.ContainsFunc(advised(want), func(s string) bool { return strings.HasPrefix(s, "MILLRACE_ACK_WAIT=") })
		if possible := wrong(t, "MILLRACE_ACK_WAIT", wait.String()) == ""; named != possible {
			t.Errorf("an ack wait of %v can be set: %v, and is advised: %v", wait, possible, named)
		}
		r.Delete("INGEST")
	}
	for _, n := range []int{1, 256, 257} {
		r.Create(jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}, SubjectTransform: &jetstream.SubjectTransformConfig{Source: ">", Destination: fmt.Sprintf("{{partition(%d)}}.>", n)}})
		for _, exclusive := range []bool{false, true} {
			l := want
			l.Exclusive = exclusive
			named := slices.Contains(advised(l), fmt.Sprintf("MILLRACE_PARTITIONS=%d", n))
			if possible := wrong(t, "MILLRACE_PARTITIONS", strconv.Itoa(n)) == ""; named != possible {
				t.Errorf("%d partitions can be set: %v, and are advised with exclusive delivery %v: %v", n, possible, exclusive, named)
			}
		}
		r.Delete("INGEST")
	}
}
