package adapter

import "testing"

// The reports that need nothing special of the engine, on MySQL or MariaDB; where rows might be counted, with either way of counting.
func TestReportsMySQL(t *testing.T) {
	t.Parallel()
	on := func(setting string, check func(r *trial)) func(t *testing.T) {
		return func(t *testing.T) { check(newTrial(t, mysqlEngine(t, setting))) }
	}
	all := map[string]func(t *testing.T){
		"Names":              on("", reportNames),
		"NamesDoNotWait":     on("", reportNamesDoNotWait),
		"NullColumns":        on("", reportNullColumns),
		"CallersTransaction": on("", reportCallersTransaction),
		"ShortTTL":           on("", reportShortTTL),
	}
	for name, setting := range map[string]string{"": "", " clientFoundRows": "clientFoundRows=true"} {
		all["UnchangedIsNoRefusal"+name] = on(setting, reportUnchanged)
		all["OwnersOfOneProcess"+name] = on(setting, reportOwnersOfOneProcess)
	}
	for what, check := range reportsOfRenewals() {
		all[what] = on("", check)
	}
	atOnce(t, all)
}
