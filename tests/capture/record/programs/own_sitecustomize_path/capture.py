WORDS = "a module called capture"
