package pages

// keyGroups is what the dialog of keys lists; the script has the same table in
// keys.ts.
var keyGroups = []struct {
	title string
	keys  []keyRow
}{
	{"Everywhere", []keyRow{
		{"⇧ ⏎", "Run, then select the next"},
		{"Ctrl ⏎", "Run"},
		{"Alt ⏎", "Run and add below"},
	}},
	{"In a cell’s text", []keyRow{
		{"Esc", "Leave the text"},
		{"Tab", "Complete or indent"},
		{"Ctrl ⇧ −", "Split at the cursor"},
		{"Ctrl Z", "Undo typing"},
	}},
	{"With a cell selected", []keyRow{
		{"⏎", "Edit its text"},
		{"↑ k  ↓ j", "Select the one above or below"},
		{"a  b", "Add above or below"},
		{"y  m  r", "Make it code, text or raw"},
		{"x  c  v", "Cut, copy, paste below"},
		{"⇧ m", "Merge with the next"},
		{"d d", "Delete"},
		{"z", "Bring back the last deleted cell"},
		{"i i", "Interrupt"},
		{"0 0", "Restart"},
		{"h", "Show these keys"},
	}},
}

type keyRow struct{ key, what string }
