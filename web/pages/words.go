package pages

// clientWords are the strings the page's script says; it gets them translated,
// as JSON in the page.
var clientWords = []string{
	"Reconnecting — nothing is lost.",
	"Connected again. Nothing was lost.",
	"The sign-in has run out. Sign in again; your text is kept in this tab.",
	"Sign in",
	"The server has been updated. Reload when it suits you; nothing is lost.",
	"Reload",
	"Cell deleted.",
	"Undo",
	"Dismiss",
	"Restart the kernel?",
	"Its variables are lost. The text and the outputs of the cells stay.",
	"Restart",
	"Restart and run all",
	"Cancel",
	"This cell was changed meanwhile",
	"%s changed it while you were typing. Both texts are below; nothing has been lost.",
	"Somebody",
	"Your text",
	"The text on the server",
	"Keep mine",
	"Take theirs",
	"Keep both",
	"Show all",
	"Show less",
	"Copy",
	"Copied.",
	"waits, number %d in line",
	"%d ms",
	"%s s",
	"%d min %d s",
	"%d h %d min",
	"Title",
	"Cell %d",
	"Text of cell %d",
	"Interrupting…",
	"Sent.",
	"There is nothing to paste. Copy or cut a cell first.",
	"This figure could not be drawn: %s",
	"Interactive output",
	"Show the interactive output",
	"No kernel is running.",
	"Ctrl",
	"Choose a cell first.",
	"%d cells",
	"Saving…",
	"Not saved: %s",
	"The server did not take the change: %s",
	"The kernel asks for input",
}

// Words is the table for the script: the English string and the one to show.
func (l Lang) Words() map[string]string {
	m := map[string]string{}
	if l == English {
		return m
	}
	for _, w := range clientWords {
		m[w] = l.T(w)
	}
	return m
}
