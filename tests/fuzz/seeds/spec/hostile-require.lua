package = require "../../../etc/passwd"
return require(string.rep("a/", 3000))
