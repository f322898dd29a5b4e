package main

import (
	"bytes"
	"strings"
	"testing"
)

var testLoad = load{messages: 3, records: 400, size: 512}

// kept returns the results of all messages of testLoad, by go-worker.
func kept(t *testing.T) (results [][]byte) {
	for i := range testLoad.messages {
		body, err := keepLong(testLoad.message(i), testLoad.minimum())
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, body)
	}
	return results
}

func TestVerifierAcceptsRightResults(t *testing.T) {
	v := verifier{load: testLoad, seen: make([]bool, testLoad.total())}
	for _, body := range kept(t) {
		if err := v.add(body); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.complete(); err != nil {
		t.Error(err)
	}
	if n := testLoad.total(); v.found < n*4/10 || v.found > n*6/10 {
		t.Errorf("%d of %d documents are long, want about half", v.found, n)
	}
}

func TestVerifierFindsWrongResults(t *testing.T) {
	for name, c := range map[string]struct {
		change func(results [][]byte) [][]byte
		want   string
	}{
		"missing":   {func(r [][]byte) [][]byte { return r[1:] }, "is missing"},
		"twice":     {func(r [][]byte) [][]byte { return append(r, r[0]) }, "occurs twice"},
		"too short": {func(r [][]byte) [][]byte { return append(r, testLoad.message(0)) }, "is too short"},
		"no id":     {func(r [][]byte) [][]byte { return append(r, []byte(`{"text":"x"}`)) }, "without a known id"},
		"unchanged": {func([][]byte) [][]byte { return [][]byte{sampled(t)} }, "differs from"},
		"other text": {func(r [][]byte) [][]byte {
			for i := range r {
				r[i] = bytes.ReplaceAll(r[i], []byte("the "), []byte("The "))
			}
			return r
		}, "differs from"},
	} {
		t.Run(name, func(t *testing.T) {
			v := verifier{load: testLoad, seen: make([]bool, testLoad.total())}
			var err error
			for _, body := range c.change(kept(t)) {
				if err = v.add(body); err != nil {
					break
				}
			}
			if err == nil {
				err = v.complete()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want one that contains %q", err, c.want)
			}
		})
	}
}

// sampled returns a long document that a verifier compares, without the member check.
func sampled(t *testing.T) []byte {
	for id := 0; id < testLoad.total(); id += sampleEvery {
		if testLoad.length(id) >= testLoad.minimum() {
			lines := bytes.Split(testLoad.message(id/testLoad.records), []byte("\n"))
			return lines[id%testLoad.records]
		}
	}
	t.Fatal("no sampled document is long")
	return nil
}
