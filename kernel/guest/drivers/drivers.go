// Package drivers holds the programs that run cells, one per language, as
// source text. It is data only: starting a driver and talking to it is the
// guest's work.
package drivers

import (
	_ "embed"
	"encoding/binary"
	"encoding/json"
)

//go:embed boot.py
var pythonBoot string

//go:embed python.py
var pythonCore string

//go:embed errors.py
var pythonErrors string

//go:embed aio.py
var pythonAIO string

//go:embed tools.py
var pythonTools string

//go:embed magic.py
var pythonMagic string

//go:embed plots.py
var pythonPlots string

// Python returns the arguments that follow the interpreter's name, and what
// the guest must send on descriptor 3 before its first request. The driver's
// core is compiled at start; its other parts when a cell first needs them.
func Python() (args []string, preamble []byte) {
	parts, err := json.Marshal(map[string]string{
		"errors": pythonErrors,
		"aio":    pythonAIO,
		"tools":  pythonTools,
		"magic":  pythonMagic,
		"plots":  pythonPlots,
	})
	if err != nil {
		panic(err) // a map of strings always encodes
	}
	preamble = binary.BigEndian.AppendUint32(nil, uint32(len(pythonCore))) //nolint:gosec // embedded, small
	preamble = append(preamble, pythonCore...)
	preamble = binary.BigEndian.AppendUint32(preamble, uint32(len(parts))) //nolint:gosec // embedded, small
	preamble = append(preamble, parts...)
	return []string{"-c", pythonBoot}, preamble
}
