package render

import (
	"fmt"
	"strings"
)

// Stylesheet returns the rules of the colours 16 … 255. The first sixteen, and
// the weights, belong to the theme of the page.
func Stylesheet() string {
	var b strings.Builder
	b.WriteString("/* Colours 16 to 255 of terminal text; made by render.Stylesheet. */\n")
	for c := 16; c < 256; c++ {
		r, g, bl := paletteRGB(c)
		fmt.Fprintf(&b, ".ansi-fg-%d{color:#%02x%02x%02x}.ansi-bg-%d{background-color:#%02x%02x%02x}\n", c, r, g, bl, c, r, g, bl)
	}
	return b.String()
}
