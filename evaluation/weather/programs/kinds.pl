# perl kinds.pl NAME a|b|c: forks with much memory, or takes fresh memory for each page
use strict; use warnings; use POSIX ();
my ($what, $side) = @ARGV; my ($slow, $mild) = ($side ne 'a', $side eq 'c');
my $fd = $ENV{CRITPATH_MARKER_FD}; my $out;
open($out, '>&=', $fd) if defined $fd;
open($out, '>', '/proc/lttng-logger') if defined $ENV{CRITPATH_RECORDER};
sub mark { syswrite($out, "critpath:$_[0] $_[1] $_[2]\n") if $out }
my $memory = 'x' x (($what eq 'fork' && $slow ? $mild ? 60 : 500 : 5) << 20);
my $kept = '';
for my $key (0 .. 7) {
    mark('begin', 'task', $key);
    if ($what eq 'fork') {
        my $child = fork();
        POSIX::_exit(0) unless $child;
        waitpid($child, 0);
    } elsif ($what eq 'chain') {
        system('sh', '-c', 'nice sleep ' . ($slow ? $mild ? '.005' : '.03' : '.002') . '; true');
    } else {
        if ($slow) { my $fresh = 'y' x (6 << 20); substr($fresh, 0, 1) = 'z'; }
        else { substr($kept, 0, 1) = 'z' if length $kept; }
    }
    my $total = 0; $total += $_ & 7 for 1 .. ($what eq 'work' ? 150000 : 20000);
    mark('end', 'task', $key);
    select(undef, undef, undef, .002);
}
POSIX::_exit(0);
