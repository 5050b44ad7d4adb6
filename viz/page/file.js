// A page from a file: its trace is in it.

show(JSON.parse($("#trace").textContent));
