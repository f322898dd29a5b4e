// Package console formats output for people at a terminal: progress lines and tables. The commands, the demo and the
// benchmarks use it. Programs should read metrics and logs instead.
//
// Start reading at Table for output, and at Meter for progress.
package console

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Bytes formats a size in binary units, as in "4.0 MiB".
func Bytes(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for n >= 1024 && i < len(units)-1 {
		n /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%.0f B", n)
	}
	return fmt.Sprintf("%.1f %s", n, units[i])
}

// Count formats a whole number with thousands separators, as in "200,000".
func Count(n int64) string {
	digits := fmt.Sprint(n)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Share formats part of whole as a percentage. It returns "-" if whole is not positive.
func Share(part, whole time.Duration) string {
	if whole <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

// Time formats a duration with three significant digits, as in "1.23 ms".
func Time(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", float64(d)/1e6)
	case d >= time.Microsecond:
		return fmt.Sprintf("%.3g us", float64(d)/1e3)
	}
	return fmt.Sprintf("%d ns", d.Nanoseconds())
}

// Bar returns a progress bar that is width columns wide.
func Bar(done, whole int64, width int) string {
	full := 0
	if whole > 0 {
		full = int(min(done, whole) * int64(width) / whole)
	}
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}

// Redraw draws the result of line on a terminal every 100 ms until the caller calls stop. stop draws the line once more and ends
// it with a line feed. The argument elapsed is the time since the call of Redraw.
func Redraw(out io.Writer, line func(elapsed time.Duration) string) (stop func()) {
	start, done := time.Now(), make(chan struct{})
	draw := func(end string) { _, _ = fmt.Fprintf(out, "\r%s   %s", line(time.Since(start)), end) }
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			draw("")
			select {
			case <-tick.C:
			case <-done:
				draw("\n")
				return
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// Table writes rows as a table. The first row is the heading. Each column is as wide as its widest cell. All columns
// except the first are right-aligned.
func Table(w io.Writer, rows [][]string) error {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range rows {
		if _, err := fmt.Fprintln(w, tableLine(row, widths)); err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		total := 2 * (len(widths) - 1)
		for _, width := range widths {
			total += width
		}
		if _, err := fmt.Fprintln(w, strings.Repeat("─", total)); err != nil {
			return err
		}
	}
	return nil
}

// tableLine pads the cells of a row to widths.
func tableLine(row []string, widths []int) string {
	var line strings.Builder
	for i, cell := range row {
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		switch {
		case i == 0:
			line.WriteString(cell + pad)
		default:
			line.WriteString("  " + pad + cell)
		}
	}
	return strings.TrimRight(line.String(), " ")
}
