package telemetry_test

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// colour is a colour in linear sRGB.
type colour [3]float64

// palettes returns the colour variables of the page's style sheet, for light and for dark mode.
func palettes(t *testing.T) map[string]map[string]colour {
	t.Helper()
	text, err := os.ReadFile("page/page.css")
	if err != nil {
		t.Fatal(err)
	}
	roots := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllSubmatch(text, -1)
	if len(roots) != 2 {
		t.Fatalf("%d blocks of variables in page.css, want one for each mode", len(roots))
	}
	light, dark := map[string]colour{}, map[string]colour{}
	for i, root := range roots {
		for _, m := range regexp.MustCompile(`--([a-z_-]+): #([0-9a-f]{6});`).FindAllSubmatch(root[1], -1) {
			c := parseColour(t, string(m[2]))
			dark[string(m[1])] = c // dark mode inherits the variables that it doesn't set
			if i == 0 {
				light[string(m[1])] = c
			}
		}
	}
	return map[string]map[string]colour{"light": light, "dark": dark}
}

func parseColour(t *testing.T, hex string) (c colour) {
	t.Helper()
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c {
		v := float64(n>>(16-8*i)&0xff) / 255
		if v <= 0.04045 {
			c[i] = v / 12.92
		} else {
			c[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	return c
}

// contrast returns the contrast ratio of WCAG 2, from 1 to 21.
func contrast(a, b colour) float64 {
	x, y := a.luminance(), b.luminance()
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func (c colour) luminance() float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] }

// stages lists the stages of a batch in order, with the names from the style sheet.
var stages = []string{"fill", "copy_in", "compute", "copy_out", "publish", "settle"}

// TestPageContrast checks the contrast that WCAG 2.2 requires: 3 for bars and other graphics (1.4.11), and 4.5 for text
// (1.4.3).
func TestPageContrast(t *testing.T) {
	for mode, palette := range palettes(t) {
		want := func(minimum float64, front string, behind ...string) {
			t.Helper()
			for _, back := range behind {
				a, known := palette[front]
				b, alsoKnown := palette[back]
				if !known || !alsoKnown {
					t.Fatalf("%s: page.css does not have --%s and --%s", mode, front, back)
				}
				if got := contrast(a, b); got < minimum {
					t.Errorf("%s: --%s on --%s has contrast %.2f, want at least %v", mode, front, back, got, minimum)
				}
			}
		}
		for _, stage := range stages {
			want(3, stage, "sunk", "card", "band", "paper")
			want(4.5, "on-"+stage, stage)
		}
		for _, front := range []string{"one", "two", "three", "more", "strong"} {
			want(3, front, "sunk", "card")
		}
		want(1.3, "two", "one") // these bars also differ in height
		want(1.3, "three", "two")
		want(4.5, "on-more", "more")
		want(3, "good", "card")
		for _, text := range []string{"ink", "soft", "accent", "bad", "warn"} {
			want(4.5, text, "paper", "card", "sunk")
		}
		want(4.5, "card", "accent") // text on pressed buttons
		want(4.5, "bad", "bad-paper")
		want(4.5, "ink", "bad-paper", "warn-paper")
	}
}

// visions are the matrices of Machado, Oliveira and Fernandes (2009), in linear sRGB, for people without one of the three kinds
// of cones.
var visions = map[string][3][3]float64{
	"normal":       {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protanopia":   {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
	"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
	"tritanopia":   {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
}

// seen returns the colour that a person with the given vision perceives.
func (c colour) seen(matrix [3][3]float64) (s colour) {
	for i, row := range matrix {
		s[i] = min(max(row[0]*c[0]+row[1]*c[1]+row[2]*c[2], 0), 1)
	}
	return s
}

// difference returns the distance of two colours in Oklab, where black and white are 1 apart.
func difference(a, b colour) float64 {
	p, q := a.oklab(), b.oklab()
	return math.Sqrt((p[0]-q[0])*(p[0]-q[0]) + (p[1]-q[1])*(p[1]-q[1]) + (p[2]-q[2])*(p[2]-q[2]))
}

func (c colour) oklab() [3]float64 {
	l := math.Cbrt(0.4122214708*c[0] + 0.5363325363*c[1] + 0.0514459929*c[2])
	m := math.Cbrt(0.2119034982*c[0] + 0.6806995451*c[1] + 0.1073969566*c[2])
	s := math.Cbrt(0.0883024619*c[0] + 0.2817188376*c[1] + 0.6299787005*c[2])
	return [3]float64{
		0.2104542553*l + 0.7936177850*m - 0.0040720468*s,
		1.9779984951*l - 2.4285922050*m + 0.4505937099*s,
		0.0259040371*l + 0.7827717662*m - 0.8086757660*s,
	}
}

// TestConsecutiveStagesDiffer checks that adjacent stages in a lane have different colours for every kind of vision. The bound is
// several times the smallest difference that people perceive.
func TestConsecutiveStagesDiffer(t *testing.T) {
	for mode, palette := range palettes(t) {
		for vision, matrix := range visions {
			for i, stage := range stages[1:] {
				a, b := palette[stages[i]].seen(matrix), palette[stage].seen(matrix)
				if d := difference(a, b); d < 0.08 {
					t.Errorf("%s, %s: %s and %s differ by %.3f, want at least 0.08", mode, vision, stages[i], stage, d)
				}
			}
		}
	}
}
