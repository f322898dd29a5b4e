package main

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
)

// screenshots is a variable with the folder for screenshots, which `make screenshots` sets. The tests take no
// screenshots if it is empty.
const screenshots = "MILLRACE_SCREENSHOTS"

// pictureBytes limits the size of a screenshot, because the repository contains it.
const pictureBytes = 120 << 10

// picture writes a screenshot to the folder of the variable screenshots, if it is set.
func (t *tab) picture(name string) {
	t.t.Helper()
	folder := os.Getenv(screenshots)
	if folder == "" {
		return
	}
	var shot []byte
	t.do(chromedp.Evaluate(`document.getAnimations().forEach((a) => a instanceof CSSTransition ? a.finish() : a.cancel())`, nil),
		chromedp.CaptureScreenshot(&shot))
	text := compressed(t.t, shot)
	if len(text) > pictureBytes {
		t.t.Errorf("%s has %d bytes, want at most %d", name, len(text), pictureBytes)
	}
	if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
		t.t.Fatal(err)
	}
}

// compressed returns the PNG file with a palette of its 256 most frequent colours. It replaces other colours by the
// nearest of these.
func compressed(t *testing.T, file []byte) []byte {
	t.Helper()
	decoded, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	box := decoded.Bounds()
	pixels := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(decoded.At(x, y)).(color.RGBA) }
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			pixels[at(x, y)]++
		}
	}
	var colours []color.RGBA
	for c := range pixels {
		colours = append(colours, c)
	}
	slices.SortFunc(colours, func(a, b color.RGBA) int { // makes the order deterministic
		return cmp.Or(pixels[b]-pixels[a], cmp.Compare(int(a.R)<<16|int(a.G)<<8|int(a.B), int(b.R)<<16|int(b.G)<<8|int(b.B)))
	})
	var palette color.Palette
	for _, c := range colours[:min(len(colours), math.MaxUint8+1)] {
		palette = append(palette, c)
	}
	entries := map[color.RGBA]uint8{}
	for _, c := range colours {
		entries[c] = uint8(palette.Index(c))
	}
	small := image.NewPaletted(box, palette)
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			small.SetColorIndex(x, y, entries[at(x, y)])
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestPicturesOfTheDocuments checks that each picture in the repository is small, and that a page shows it with
// alternative text.
func TestPicturesOfTheDocuments(t *testing.T) {
	t.Parallel()
	pictures, err := filepath.Glob("../../docs/images/*.png")
	if err != nil || len(pictures) < 10 {
		t.Fatalf("%d pictures, %v", len(pictures), err)
	}
	var pages []byte
	for _, page := range []string{"../../README.md", "../../docs/troubleshooting.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, text...)
	}
	for _, picture := range pictures {
		info, err := os.Stat(picture)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > pictureBytes {
			t.Errorf("%s has %d bytes, want at most %d", picture, info.Size(), pictureBytes)
		}
		name := regexp.QuoteMeta(filepath.Base(picture))
		if !regexp.MustCompile(`<img [^>]*images/` + name + `"[^>]* alt="[^"]{20}|alt="[^"]{20}[^>]*images/` + name + `"|<source [^>]*images/` + name).Match(pages) {
			t.Errorf("%s is on no page with an alternative text", picture)
		}
	}
}

func TestCompressedPicturesKeepTheirColours(t *testing.T) {
	t.Parallel()
	few, many := image.NewRGBA(image.Rect(0, 0, 64, 64)), image.NewRGBA(image.Rect(0, 0, 64, 64))
	for i := range 64 * 64 {
		few.Set(i%64, i/64, color.RGBA{uint8(i % 16 * 17), uint8(i / 64 % 16 * 17), 0, 255})
		many.Set(i%64, i/64, color.RGBA{uint8(i % 64 * 4), uint8(i / 64 * 4), 0, 255})
	}
	for name, c := range map[string]struct {
		picture *image.RGBA
		max     int // maximum difference of a colour
	}{"256 colours": {few, 0}, "4096 colours": {many, 255}} {
		var file bytes.Buffer
		if err := png.Encode(&file, c.picture); err != nil {
			t.Fatal(err)
		}
		got, err := png.Decode(bytes.NewReader(compressed(t, file.Bytes())))
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := got.(*image.Paletted); !ok || got.Bounds() != c.picture.Bounds() || len(p.Palette) > 256 {
			t.Errorf("%s: %T of %v", name, got, got.Bounds())
		}
		for i := range 64 * 64 {
			want, is := c.picture.RGBAAt(i%64, i/64), color.RGBAModel.Convert(got.At(i%64, i/64)).(color.RGBA)
			if d := max(int(want.R)-int(is.R), int(is.R)-int(want.R), int(want.G)-int(is.G), int(is.G)-int(want.G)); d > c.max {
				t.Fatalf("%s: pixel %d is %v, want %v", name, i, is, want)
			}
		}
	}
}
