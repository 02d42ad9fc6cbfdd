package main

import (
	"context"
	"strings"

	"sandbook/kernel"
	"sandbook/kernel/notebook"
	"sandbook/sessionstore"
)

// demo makes a notebook that shows what there is, on a server that has none.
// limited says that memory has a limit: nobody is asked to try it out where it
// has not.
func demo(ctx context.Context, m *kernel.Manager, st *sessionstore.Store, limited bool) error {
	page, err := st.List(ctx, sessionstore.ListQuery{Limit: 1})
	if err != nil || len(page.Notebooks) > 0 {
		return err
	}
	md, code := notebook.MarkdownCell, notebook.CodeCell
	intro, how, end := demoIntro, "This asks for more memory than the sandbox may have.", demoHog
	if !limited {
		intro = strings.Replace(intro, ", with a memory limit,", "", 1)
		how, end = "This makes the interpreter crash.", demoCrash
	}
	_, err = m.Create(ctx, notebook.Actor{Author: notebook.TheServer.Author, Scopes: []notebook.Scope{notebook.ScopeEdit}},
		notebook.Created{Title: "A first look", Language: "python"}, []kernel.NewCell{
			{Kind: md, Source: intro},
			{Kind: code, Source: demoTable},
			{Kind: code, Source: demoPlot},
			{Kind: md, Source: "### Nothing is lost\nRun the next cell and, while it counts, reload this page, close the tab, or even kill the server and start it again. The count goes on, and every line is here when you come back."},
			{Kind: code, Source: demoLoop},
			{Kind: md, Source: "### A kernel says why it died\n" + how + " Read what the page says, then run the cell above again: a new kernel starts by itself."},
			{Kind: code, Source: end},
			{Kind: md, Source: "### What the walls are\nNo network, no files of yours, no other processes. Press the kernel's name in the bar to see each check the sandbox made of itself before it took any code."},
			{Kind: code, Source: demoWalls},
		}, nil)
	return err
}

const demoIntro = `# A first look
Code below runs in a sandbox on this machine: an isolated process without network, with a memory limit, and with nothing of yours inside it.

Press **Shift + Enter** to run a cell and go to the next. Press **h** for all keys.`

const demoTable = `import pandas as pd

sales = pd.DataFrame({
    "month": ["June", "July", "August", "September"],
    "new": [1204, 1388, 1517, 1490],
    "stayed": [911, 1002, 1060, 1101],
})
sales["rate"] = (sales.stayed / sales.new).round(3)
sales`

const demoPlot = `import matplotlib.pyplot as plt

fig, ax = plt.subplots(figsize=(7, 2.8))
ax.plot(sales.month, sales.rate, marker="o")
ax.set_ylabel("stayed")
ax.set_ylim(0.6, 0.85)
ax.grid(alpha=0.3)`

const demoLoop = `import time

for i in range(1, 61):
    print(f"\rstep {i} of 60", end="")
    if i % 10 == 0:
        print("  done")
    time.sleep(0.5)`

const demoHog = `hog = []
while True:
    hog.append(bytearray(50_000_000))`

const demoCrash = `import ctypes
ctypes.string_at(0)`

const demoWalls = `import os, socket

def attempt(name, do):
    try:
        print(f"{name:28}", do())
    except Exception as e:
        print(f"{name:28}", type(e).__name__, "-", e)

attempt("reach the network", lambda: socket.create_connection(("1.1.1.1", 53), 2))
attempt("write to /usr", lambda: open("/usr/x", "w"))
attempt("read /etc/shadow", lambda: open("/etc/shadow").read())
attempt("see other processes", lambda: [p for p in os.listdir("/proc") if p.isdigit()])`
