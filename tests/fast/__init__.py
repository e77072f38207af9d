from capsnmt import fast

fast.install()  # tests of modules alone import no plugin
