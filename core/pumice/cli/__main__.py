from pumice.cli import main

main()
