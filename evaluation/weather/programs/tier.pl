# perl tier.pl NAME PORT [NEXT]: a link of a chain of servers, a process for each connection (see tier.c)
use strict; use warnings; use IO::Socket::INET; use Socket qw(IPPROTO_TCP TCP_NODELAY);
my ($name, $port, $next) = @ARGV; $0 = $name; $SIG{CHLD} = 'IGNORE';
sub work { my $total = 0; $total += $_ & 7 for 1 .. $_[0]; }
my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1:$port", Listen => 16, ReuseAddr => 1) or die;
while (my $client = $server->accept) {
    if (fork) { close $client; next; }
    setsockopt $client, IPPROTO_TCP, TCP_NODELAY, 1;
    my $onward = $next && IO::Socket::INET->new("127.0.0.1:$next");
    setsockopt $onward, IPPROTO_TCP, TCP_NODELAY, 1 if $onward;
    while (sysread $client, my $line, 100) {
        my ($whom, $times) = split ' ', $line; my $mine = $whom eq $name;
        work(300);
        for (my $i = 0; $onward && $i < ($mine ? $times : 1); $i++) {
            work($mine ? 2500 : 0);
            syswrite $onward, $mine ? "- 1\n" : $line; sysread $onward, my $answer, 10 or exit;
        }
        syswrite $client, "ok\n";
    }
    exit;
}
