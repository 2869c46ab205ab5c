python kill.py 20
