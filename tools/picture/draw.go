package main

import (
	"fmt"
	"html"
	"io"
	"strings"
)

// The dimensions of the picture, in its own units.
const (
	width  = 960
	left   = 96 // width of the engines' names
	right  = 16
	head   = 40 // height of a panel's title
	row    = 30
	thick  = 24 // height of a bar
	strip  = 8  // height of the overlap strip below
	gap    = 26 // space between panels, including the axis
	colors = 5
)

// style has a palette that is distinguishable with red-green blindness, on light and on dark backgrounds.
const style = `<style>
text{font:13px system-ui,sans-serif;fill:#1f2328}
.title{font-weight:600;font-size:15px}
.axis{fill:#59636e;font-size:11px}
.in{fill:#fff;font-size:12px;text-anchor:middle}
.track{fill:#eef1f4}
.c0{fill:#0b62a4}.c1{fill:#a34f00}.c2{fill:#1c6e5a}.c3{fill:#7d4698}.c4{fill:#8a5a00}
.two{fill:#7fb2dd}.three{fill:#0b62a4}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.axis{fill:#9198a1}.in{fill:#fff}.track{fill:#21262d}.two{fill:#2f5f8a}.three{fill:#79b8ff}}
</style>
`

// draw writes the panels one below the other, on the same scale.
func draw(out io.Writer, panels []panel, span float64) error {
	each := head + len(engines)*row + strip + gap
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n", width, each*len(panels), html.EscapeString(description(panels)))
	b.WriteString(style)
	for i, p := range panels {
		p.draw(&b, i*each, span)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// description returns a description of the picture in words.
func description(panels []panel) string {
	var list []string
	for _, p := range panels {
		list = append(list, fmt.Sprintf("%s: %.0f microseconds a batch", p.title, p.pace))
	}
	return strings.Join(list, "; ")
}

func (p panel) draw(b *strings.Builder, top int, span float64) {
	at := func(us float64) float64 { return left + us/span*(width-left-right) }
	fmt.Fprintf(b, `<text class="title" x="%d" y="%d">%s</text><text class="axis" x="%d" y="%d" text-anchor="end">%.0f us a batch</text>`+"\n",
		left, top+24, html.EscapeString(p.title), width-right, top+24, p.pace)
	for i, name := range engines {
		y := top + head + i*row
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text><rect class="track" x="%d" y="%d" width="%d" height="%d" rx="3"/>`+"\n",
			left-10, y+17, strings.ReplaceAll(name, "_", " "), left, y, width-left-right, thick)
	}
	for _, r := range p.bars {
		from, to := at(max(r.start, 0)), at(min(r.end, span))
		y := top + head + r.engine*row
		fmt.Fprintf(b, `<rect class="c%d" x="%.1f" y="%d" width="%.1f" height="%d" rx="3"/>`, r.batch%colors, from, y, max(to-from-1, 1), thick)
		if to-from > 28 { // the number fits
			fmt.Fprintf(b, `<text class="in" x="%.1f" y="%d">%d</text>`, (from+to)/2, y+16, r.batch)
		}
		b.WriteByte('\n')
	}
	y := top + head + len(engines)*row
	fmt.Fprintf(b, `<text class="axis" x="%d" y="%d" text-anchor="end">overlap</text>`+"\n", left-10, y+strip)
	for _, s := range overlap(p.bars, span) {
		class := "two"
		if s.busy == len(engines) {
			class = "three"
		}
		fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"/>`+"\n", class, at(s.start), y, at(s.end)-at(s.start), strip)
	}
	for us := 0.0; us <= span; us += step(span) {
		fmt.Fprintf(b, `<text class="axis" x="%.1f" y="%d" text-anchor="middle">%.0f us</text>`, at(us), y+strip+14, us)
	}
	b.WriteByte('\n')
}

// step returns a round number of microseconds between two ticks of the axis, which has at most ten.
func step(span float64) float64 {
	s := 1.0
	for _, by := 0, []float64{2, 2.5, 2}; span/s > 10; {
		s *= by[0]
		by = append(by[1:], by[0])
	}
	return s
}
