package pages

import (
	"time"

	"sandbook/web/render"
)

// Assets are the URLs of built files. Package static knows them.
type Assets struct {
	Style  string // of every page
	Script string // of the notebook page
	Small  string // script of every other page
	Math   string // style sheet of formulas, loaded when there are some
	Icon   string
}

// Chrome is what every page needs besides its own value.
type Chrome struct {
	Lang   Lang
	Theme  Theme
	CSRF   string // hidden field of every form
	Assets Assets
	User   string // name of who is signed in; empty: nobody
	Path   string // of the page, for the links that change the language
}

// Theme is what the person chose; the zero value follows the system.
type Theme string

// The themes.
const (
	AutoTheme  Theme = ""
	LightTheme Theme = "light"
	DarkTheme  Theme = "dark"
)

// ParseTheme reads the theme cookie; anything unknown follows the system.
func ParseTheme(s string) Theme {
	switch t := Theme(s); t {
	case LightTheme, DarkTheme:
		return t
	}
	return AutoTheme
}

// Tone colours a word or a dot: only where a person must act.
type Tone string

// The tones.
const (
	Quiet Tone = ""
	Good  Tone = "ok"
	Busy  Tone = "busy"
	Wait  Tone = "wait"
	Bad   Tone = "bad"
	Off   Tone = "off"
)

// List is the page of notebooks.
type List struct {
	Chrome
	Query   string
	Rows    []Row
	Trash   []Row
	Deleted *Row   // just deleted: offers undo
	Problem string // sentence: why the last form did nothing
	Total   int    // notebooks there are, without the search
}

// Row is one notebook of the list.
type Row struct {
	ID      string
	Title   string
	Changed time.Time
	Now     time.Time
	Cells   int
	Kernel  string // word, in the page's language
	Tone    Tone
	Waiting bool // for input
}

// Login is the sign-in page.
type Login struct {
	Chrome
	Problem string // sentence: why signing in did not work
	Next    string // where to go afterwards
}

// Failure is the page of an error.
type Failure struct {
	Chrome
	Status    int
	Message   string
	RequestID string
}

// Docs is a page of the documentation.
type Docs struct {
	Chrome
	Title string
	Body  render.HTML
	Nav   []DocLink
}

// DocLink leads to a page of the documentation.
type DocLink struct {
	Title   string
	Href    string
	Current bool
}

// Notebook is the notebook page.
type Notebook struct {
	Chrome
	ID          string
	Title       string
	Seq         int64
	Build       string
	FrameOrigin string // of active outputs; empty: they show their still picture
	ReadOnly    bool   // the actor may not edit
	Deleted     bool   // it is in the trash

	Kernel  Kernel
	Actions Actions
	Banner  *Banner
	Cells   []Cell
	Rail    Rail
}

// Kernel is the pill in the bar and what it opens.
type Kernel struct {
	Lang   Lang
	Tone   Tone
	Label  string // "Python 3.11 · idle · bubblewrap, 14 of 14 checks"
	Short  string // "idle", for narrow bars
	Checks []Check
	Alive  bool
}

// Check is one line of the isolation self-check.
type Check struct {
	Name   string
	Detail string
	OK     bool
}

// Actions are the buttons of the bar.
type Actions struct {
	Lang    Lang
	Busy    bool
	Waiting bool   // the live run waits for input
	WaitID  string // cell that waits
	Stage   string // words: how far an interrupt has gone
	Alive   bool
	Trash   int // deleted cells
}

// Banner says what a person should know before anything else.
type Banner struct {
	Lang    Lang
	Tone    Tone
	Message string
	Restart bool // offer Restart and Restart and run all
	Start   bool // offer Start
	Restore bool // offer to take the notebook out of the trash
}

// Cell is one cell.
type Cell struct {
	Lang     Lang
	ID       string
	Number   int // place in the notebook, from 1
	Kind     string
	Version  int
	Source   string
	Visible  bool        // Shown reads as exactly Source, so a script may take it from there
	Shown    render.HTML // highlighted code or formatted Markdown
	ReadOnly bool
	Head     Head
	At       Clock
	Outputs  []Output
	Foot     Foot
}

// Head is the quiet line above a cell. It holds nothing that changes by itself:
// the clock is given when it is printed.
type Head struct {
	Lang   Lang
	Cell   string
	Kind   string
	Author string
	Agent  bool
	Tag    string // staleness or a status that asks for attention, in words
	Tone   Tone
	Title  string // sentence behind the tag

	Run     string    // the live or waiting run
	Queued  bool      //
	Since   time.Time // when the live run started
	Last    string    // "1.2 s": how long it took last time
	Stage   string    // words: how far an interrupt has gone
	Waiting bool      // for input

	Took   string // "1.2 s"
	Memory string // "84 MiB"
	CPU    string // "0.9 s CPU"
	Order  string // "ran 3rd"
}

// Output is one output of a run.
type Output struct {
	Lang       Lang
	ID         string // element id
	Kind       string // stream, display, result, error
	Name       string // stdout, stderr
	Background bool
	Stream     *Stream
	HTML       render.HTML
	Frame      *Frame
}

// Stream is what a run printed, line by line.
type Stream struct {
	Head  []render.HTML // first lines of a long text
	Gap   string        // sentence: what is left out here
	First int64         // number of the first of Lines, counted from 0 over all that was printed
	Lines []render.HTML
	All   string // URL of the whole text
	Long  bool
}

// Frame is an active output.
type Frame struct {
	Mime  string
	Text  string
	Blob  string // URL, when Text is empty
	Note  string // sentence: what the frame may not load
	Title string
}

// Foot is what stands below the outputs.
type Foot struct {
	Lang    Lang
	Cell    string
	Why     string // sentence: why the run ended as it did
	Tone    Tone
	Files   []File
	Removed []string
	More    int
	Input   *Input
}

// File is a workspace file.
type File struct {
	Path string
	Href string // empty: cannot be downloaded
	Size string
	Why  string // sentence: why it was not kept
}

// Input is a question of the live run.
type Input struct {
	Run      string
	Prompt   string
	Password bool
}

// Rail is the right column.
type Rail struct {
	Files   RailFiles
	Kernel  RailKernel
	History RailHistory
}

// RailFiles is the workspace.
type RailFiles struct {
	Lang  Lang
	Files []File
	More  int
}

// RailKernel is the state of the kernel in plain words.
type RailKernel struct {
	Lang     Lang
	Alive    bool
	Limit    string // "of 1,024 MiB", after the figure
	Started  time.Time
	Adopted  string // words: how often the server restarted under it
	Restarts string // words
	Backend  string
}

// RailHistory is what happened last, newest first.
type RailHistory struct {
	Lang  Lang
	Items []HistoryItem
}

// HistoryItem is one line of it.
type HistoryItem struct {
	At   time.Time
	Text string
}
