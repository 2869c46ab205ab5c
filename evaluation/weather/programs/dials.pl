# perl dials.pl PERCENT [K]: eight requests that count words, 100 % is as it is (see dials.py)
use strict; use warnings; use POSIX ();
my ($percent, $dialled) = (@ARGV, 8);
my $fd = $ENV{CRITPATH_MARKER_FD}; my $out;
open($out, '>&=', $fd) if defined $fd;
open($out, '>', '/proc/lttng-logger') if defined $ENV{CRITPATH_RECORDER};
sub mark { syswrite($out, "critpath:$_[0] words $_[1]\n") if $out }
my @all = map { 'w' . ($_ * 7919 % 997) . ' and x' . $_ } 1 .. 20000;
for my $key (-2 .. 7) {
    my $much = $key * 5 % 8 < $dialled ? $percent : 100;
    my $size = int(4000 * (.85 + .1 * ($key % 4)) * $much / 100);
    mark('begin', $key) if $key >= 0;
    my %count;
    for my $line (@all[0 .. $size - 1]) { $count{$1}++ while $line =~ /(\w+)/g; }
    my @sorted = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
    mark('end', $key) if $key >= 0;
    select(undef, undef, undef, .001);
}
POSIX::_exit(0);
