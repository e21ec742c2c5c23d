# Turns schema.sql into C string literals, a line each.
s/\\/\\\\/g
s/"/\\"/g
s/^/"/
s/$/\\n"/
