package telemetry

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"strings"
)

// The timeline page is one document without external parts. Its source is split into files by topic. The scripts share
// one scope and are concatenated in this order.
//
//go:embed page
var pageFiles embed.FS

var pageScripts = []string{"format.js", "model.js", "poll.js", "view.js", "chart.js", "draw.js", "panels.js", "job.js", "latest.js", "state.js", "detail.js", "controls.js"}

// page is the document, ready to be served.
type page struct {
	document []byte
	policy   string // Content-Security-Policy
}

// newPage assembles the page. The files are embedded in the program, so an error in them is a bug and panics.
func newPage(build Build) *page {
	style := "\n" + pageFile("page.css")
	script := "\n\"use strict\";\n(() => {\n"
	for _, name := range pageScripts {
		script += pageFile(name)
	}
	script += "})();\n"
	var document bytes.Buffer
	err := template.Must(template.New("page").Parse(pageFile("page.html"))).Execute(&document, struct {
		Build
		Style  template.CSS
		Script template.JS
	}{build, template.CSS(style), template.JS(script)})
	if err != nil {
		panic(fmt.Sprintf("telemetry: the timeline page: %v", err))
	}
	return &page{document: document.Bytes(), policy: strings.Join([]string{
		"default-src 'none'", "script-src " + hashOf(script), "style-src " + hashOf(style),
		"connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
	}, "; ")}
}

func pageFile(name string) string {
	text, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic(fmt.Sprintf("telemetry: the timeline page: %v", err))
	}
	return string(text)
}

// hashOf returns the CSP hash of an inline part. A browser runs only inline parts with a listed hash.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// ServeHTTP implements http.Handler.
func (p *page) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", p.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(p.document) // ignore a client that has disconnected
}
