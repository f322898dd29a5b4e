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

// The timeline page is one document without outside parts. It is kept in pieces, each of which is one idea, and put
// together here: the scripts, in this order, share one scope.
//
//go:embed page
var pageFiles embed.FS

var pageScripts = []string{"format.js", "model.js", "poll.js", "view.js", "chart.js", "draw.js", "panels.js", "detail.js", "controls.js"}

// page is the document, ready to be sent.
type page struct {
	document []byte
	policy   string // Content-Security-Policy
}

// newPage puts the page together. The pieces are part of the program, so a fault in them is one of the program's.
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

// hashOf names an inline part to a browser, which runs that one and none that somebody smuggles in.
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
	_, _ = w.Write(p.document) // a client that has gone needs no answer
}
