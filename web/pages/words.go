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
	"Copied.",
	"waits, number %d in line",
	"%d ms",
	"%s s",
	"%d min %d s",
	"%d min",
	"%d h %d min",
	"Title",
	"Cell %d",
	"Text of cell %d",
	"There is nothing to paste. Copy or cut a cell first.",
	"This figure could not be drawn: %s",
	"Interactive output",
	"Its address may tell %s what the code knows.",
	"Open",
	"Open a link of this output?",
	"it left its frame for another address",
	"Choose a cell first.",
	"Not saved: %s",
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
