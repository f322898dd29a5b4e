package faults

import (
	"fmt"
	"sync"
	"time"
)

// row is one line of the record: a fault, the number of injections, and the outcomes of the inputs.
type row struct {
	fault string
	mode  string
	times int
	audit audit
	took  time.Duration
}

// log prints the record as a Markdown table. It prints each line as soon as the line is known, so the results of an
// interrupted run are not lost.
type log struct {
	mu    sync.Mutex
	begun bool
}

var record log

func (l *log) enter(x row) {
	if !isFull() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun {
		l.begun = true
		fmt.Println("| fault | delivery | times | payloads | redelivered | dead letters | lost | doubled | wrong | seconds |")
		fmt.Println("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	}
	a := x.audit
	fmt.Printf("| %s | %s | %d | %d | %d | %d | %d | %d | %d | %.0f |\n",
		x.fault, x.mode, x.times, a.payloads, a.redelivered, a.dead, a.lost, a.doubled, a.wrong, x.took.Seconds())
}
