package exchange

import (
	"fmt"
	"io"
	"sync"
	"time"

	"millrace/internal/console"
)

// Progress draws a line on a terminal while a Sender works: how many payloads are stored, how fast, and a bar if the size of the sources is
// known.
type Progress struct {
	Out      io.Writer
	Width    int // of the terminal in columns
	Sender   *Sender
	Payloads *Payloads
	Size     int64 // of all sources in bytes; 0 if it isn't known
}

// Start draws until stop is called, which leaves a finished line.
func (p *Progress) Start() (stop func()) {
	start, done := time.Now(), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			_, _ = fmt.Fprintf(p.Out, "\r%s   ", p.line(time.Since(start)))
			select {
			case <-tick.C:
			case <-done:
				_, _ = fmt.Fprintf(p.Out, "\r%s   \n", p.line(time.Since(start)))
				return
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// line returns the line after that time.
func (p *Progress) line(elapsed time.Duration) string {
	stored, bytes := p.Sender.Stored()
	seconds := max(elapsed.Seconds(), 1e-9)
	text := fmt.Sprintf("%s stored, %s/s, %s/s", console.Count(stored), console.Count(int64(float64(stored)/seconds)), console.Bytes(float64(bytes)/seconds))
	if p.Size <= 0 {
		return text
	}
	// Bytes are read ahead of the server's answers, so the bar is full only at the end.
	return console.Bar(min(p.Payloads.Read(), p.Size), p.Size, max(p.Width-len(text)-5, 10)) + " " + text
}
