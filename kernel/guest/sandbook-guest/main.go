// Command sandbook-guest is the first process of a sandbox. It is a small
// static program; all it does is in package guest.
package main

import (
	"os"

	"sandbook/kernel/guest"
)

func main() { os.Exit(guest.Main(os.Args[1:])) }
