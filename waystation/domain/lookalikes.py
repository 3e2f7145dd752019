"""Letters and signs that are taken for those of a tag, and signs that show nothing.

Written by `make lookalikes` from homoglyphs_fork 2.1.2 and regex 2026.11.15, and Unicode 14.0.0; not by hand.
"""

from collections.abc import Iterator

_READINGS = """
a: 23a 250-251 363 386 391 3ac 3b1 410 430 4d0-4d3 13aa 15c4-15c5 1d00 1d2c 1d43-1d45 1d8f 1df2 1f00-1f0f
1f70-1f71 1f80-1f8f 1fb0-1fb4 1fb6-1fbc 2090 237a 2c65 2c6d 2c6f a4ee-a4ef a7ba-a7bb ab7a 102a0 16f40 1ccd6
1d6a8 1d6c2 1d6e2 1d6fc 1d71c 1d736 1d756 1d770 1d790 1d7aa 1f110 1f130 1f150 1f170 1f1e6 e0041 e0061;
aa: a732-a733;
ae: c6 e6 1e2-1e3 1fc-1fd 4d4-4d5 1d2d 10783;
ao: a734-a735;
ar: 1f707;
arn: 33df;
au: a736-a737;
av: a738-a73b;
ay: a73c-a73d;
b: 180-185 243 253 299 392 411-412 42c 432 44a 44c 462-463 48c-48d 13cf 13f4 13fc 1472-1473 147e-1481 1488
150e 1583-1584 15af 15f7 1c80 1d03 1d2e 1d47 1d6c 1d80 1de8 2c82-2c83 a4d0 a69c-a69d a796-a797 a7b4 ab9f 10282
102a1 10301 10784-10785 16eb6 1ccd7 1d6a9 1d6e3 1d71d 1d757 1d791 1f111 1f131 1f151 1f171 1f1e7 e0042 e0062;
bi: 44b 4f9 a651;
bl: 42b 4f8;
c: 187-188 23b-23c 255 297 368 37d 3f2 3ff 404 421 441 4aa-4ab 1004 105a 13df 1c83 1d04 1d9c-1d9d 2184 2c88
2ca4-2ca5 a4da a73e-a73f a792-a794 a7c4 a7f2 abaf 102a2 10302 10415 1043d 1051c 118e9 118f2 1ccd8 1df0f 1df1d
1f112 1f12b 1f132 1f152 1f172 1f1e8 1f74c e0043 e0063;
c e: 3ad 3b5 3f5 454 511 1f10-1f15 1f72-1f73 2c89 ab9b 10429 118ce 1d6c6 1d6dc 1d700 1d716 1d73a 1d750 1d774
1d78a 1d7ae 1d7c4;
c o: 37b 3f9 1044b;
cai cal: 3388;
cd: 1f12d;
d: d0 110-111 189-18c 221 256-257 2a4 369 500-501 13a0 13e7 146f 147a-147b 1487 1581 15de 15ea 1d05 1d30 1d48
1d6d 1d81 1d91 1dd8 a4d2-a4d3 a779-a77a a7c7-a7c8 ab70 abb7 1078a-1078d 1ccd9 1f113 1f133 1f153 1f173 1f1a5
1f1e9 e0044 e0064;
di dl: 3397;
dj: 1f190;
drn: 3377-3379;
dz: 2a3 2a5 10787 10789;
e: 18e 190 1b7 1dd 1ee 21c 246-247 258-25e 29a 364 388 395 400-401 415 417 435 437 450-451 499 4bc-4bf 4d6-4d7
4d9 4db 4de-4e0 510 13ac 13cb 1d07-1d08 1d31-1d32 1d49-1d4c 1d92-1d94 1d9f 1f18-1f1d 1fc8-1fc9 2091 2094 2107
212e 22ff 2c78 2c7b 2c9c 2cc4 2ccc 2d39-2d3a a4f0-a4f1 a76a a79d a7ab ab32-ab34 ab61 ab7c 10286 10401 1042a
10442 1078e-1078f 118a6 118ae 118c6 118ca 16f2d 16f3b 1ccda 1d6ac 1d6e6 1d720 1d75a 1d794 1f114 1f134 1f154
1f174 1f1ea e0045 e0065;
eo: 1d14 ab41-ab42;
erg: 32cd;
ev: 32ce;
f: 191-192 3dc-3dd 554 584 15b4 15b7 1d6e 1d82 1da0 1deb 1e9d a4dd a730 a77b-a77c a798-a799 a7f3 a7fb ab35
10287 102a5 10525 118a2 118c2 1ccdb 1d213 1d7ca-1d7cb 1f115 1f135 1f155 1f175 1f1eb e0046 e0066;
f s: 17f;
fax: 213b;
ffi ffl: fb04;
fi fl: fb02;
fn: 2a9 10790;
g: 18d 193 1e4-1e5 260-262 29b 50c-50d 551 581 13c0 13f3 13fb 1acc 1d33 1d4d 1d77 1d79 1d83 1da2 1dda-1ddb
a4d6 a77d-a77f a7a0-a7a1 a7ac a7d0-a7d1 ab36 ab90 10792-10794 1ccdc 1df01-1df02 1f116 1f136 1f156 1f176 1f1ec
e0047 e0067;
gai gal: 33ff;
h: 126-127 265-266 29c 2ae-2af 2b1 36a 370 389 397 41d 43d 45b 4a2-4a3 4ba-4bb 4c7-4ca 540 570 13a8 13b0 13bb
13c2 13f2 157c 1d34 1d78 1da3 1f28-1f2f 1f98-1f9f 1fca-1fcc 2095 210f 2c67-2c68 2c75-2c76 2c8e-2c8f a4e7 a695
a6b1 a727 a78d a795 a7aa a7f5-a7f6 a7f8 ab5c ab80 ab8b ab92 102cf 10795-10796 1ccdd 1d6ae 1d6e8 1d722 1d75c
1d796 1f117 1f137 1f157 1f177 1f1ed e0048 e0068;
hg: 32cc;
hv: 1f14a;
i: 131 197 268-26a 2db 365 37a 390 3af 3b9 3ca 456-457 552 582 587 13a5 1d09 1d62 1d7b-1d7c 1d96 1da4-1da7
1f30-1f37 1f76-1f77 1fbe 1fd0-1fd3 1fd6-1fd7 2373 2c93 a646-a647 a7ae a7bc-a7bd ab75 118c3 1d6a4 1d6ca 1d704
1d73e 1d778 1d7b2 1df1a 1f158 1f178 1f1ee e0069;
i l: 31 49 6c 7c b9 bc-bd cc-cf 128 12a 12c 12e 130 13a 13c 13e 140 196 1c0 1cf 208 20a 26e 2e1 38a 399 3aa
406-407 4c0 4cf 5c0 5d5 5df 622-623 625 627 661 672-673 675 6f1 7ca 14b7 16c1 1d35 1e2c 1e2e 1e37 1e39 1e3b
1e3d 1ec8 1eca 1f38-1f3f 1fd8-1fdb 2081 2097 2110-2111 2113 2150-2151 2153 2155 2159 215b 215f-2160 217c
2223-2224 23fd 2460 246b-2472 2474 247f-2486 2488 2493-249a 24a7 24be 24db 2c92 2d4f 3251 325b 32b6 32c0 32cb
3359 3364-336b 336d 33e0 33eb-33f2 33f4 33fe a4f2 a650 fb35 fb4b fbea-fbeb fc37 fc80 fc88 fd3c-fd3d fdf3 fdfc
fe81-fe84 fe87-fe88 fe8d-fe8e fef5-fefc ff11 ff29 ff4c ff5c ffe8 1028a 10309 10320 1079e 107b6 11dda 11de1
16eaa 16f28 1ccde 1ccf1 1d408 1d425 1d43c 1d459 1d470 1d48d 1d4c1 1d4d8 1d4f5 1d529 1d540 1d55d 1d574 1d591
1d5a8 1d5c5 1d5dc 1d5f9 1d610 1d62d 1d644 1d661 1d678 1d695 1d6b0 1d6ea 1d724 1d75e 1d798 1d7cf 1d7d9 1d7e3
1d7ed 1d7f7 1e8c7 1ee00 1ee80 1f102 1f118 1f138 1fbf1 e0031 e0049 e006c e007c;
ii il li ll: 2161 246a 247e 2492 32ca 3363 33ea;
iii iil ili ill lii lil lli lll: 2162;
iio ilo lio llo: 2152;
ij lj: 132 1c9;
in ln: 33d1;
io lo: 2469 247d 2491 32c9 3362 33e9 fdf2 fdfb;
iog log: 33d2;
ioo loo: fdfa;
irn lrn: 33d0;
iu lu: 337a;
iv lv: 2163;
ix lx: 2168 33d3;
j: 237 248-249 25f 284 29d 37f 3f3 408 458 575 13ab 148d 1498-1499 1591 1673 1d0a 1d36 1da1 1da8 2c7c a4d9
a7b2 ab7b 10798 1ccdf 1d6a5 1f119 1f139 1f159 1f179 1f1ef e004a e006a;
k: 138 198-199 29e 39a 3ba 3f0 40c 41a 43a 45c 49a-49b 49e-49f 13e6 16d5 1d0b 1d37 1d4f 1d84 1ddc 2096
2c69-2c6a 2c94-2c95 a4d7 a740-a745 a7a2-a7a3 a7b0 abb6 10518 1cce0 1d6b1 1d6cb 1d6de 1d6eb 1d705 1d718 1d725
1d73f 1d752 1d75f 1d779 1d78c 1d799 1d7b3 1d7c6 1df03 1df10 1f11a 1f13a 1f15a 1f17a 1f1f0 e004b e006b;
kcai kcal: 3389;
ki kl: 3398;
l: 141-142 19a 234 23d 26b-26d 29f 5f1 13de 14aa 14b6 1d0c 1d38 1d85 1da9-1dab 1ddd-1dde 1dec 2c60-2c62
2cd0-2cd1 a4e1 a746-a749 a780-a781 a78e a7ad ab37-ab39 ab5d-ab5e abae 1041b 10443 10526 1079b-1079d 118a3
118b2 118d2 16f16 1cce1 1d22a 1df04 1df11 1df13 1f11b 1f13b 1f15b 1f17b 1f1f1 e004c;
ll: 1c1 5f0 2016 2225-2226 107b7;
lo: 42e 44e;
ls: 2aa 10799;
lt: 20b6;
ltd: 32cf;
lz: 2ab 1079a;
n: 14b 19d-19e 220 235 272-274 377 39d 3ae 3b7 438-439 45d 48b 4e3 4e5 548 54c 572 578 57c 1459-145a 1468 1d0e
1d3a 1d51 1d70 1d87 1dae-1db0 1de0-1de1 1f20-1f27 1f74-1f75 1f90-1f97 1fc2-1fc4 1fc6-1fc7 2099 2c9a-2c9b a4e0
a790-a791 a7a4-a7a5 ab3b 1044d 10513 1cce3 1d6b4 1d6c8 1d6ee 1d702 1d728 1d73c 1d762 1d776 1d79c 1d7b0 1f11d
1f13d 1f15d 1f17d 1f1f3 e004e e006e;
o: 30 d8 f8 186 19f 1fe-1ff 254 275 366 38c 398 39f 3a3 3b8 3bf 3c3 3cc 3d1 3ec-3ed 3f4 3fd 41e 43e 472-473
4e6-4eb 555 585 5e1 629 647 665 6be 6c0-6c3 6d5 6f5 6ff 7c0 966 9e6 a66 ae6 b20 b66 be6 c02 c66 c82 ce6 d02
d20 d66 d82 e50 ed0 1010 101d 1040 10d7 10ff 12d0 13a4 13be 13eb 17e0 1c82 1cbf 1d0f-1d11 1d16-1d17 1d3c
1d52-1d55 1d97 1db1 1dbf 1ded 1df3 1f40-1f45 1f48-1f4d 1f78-1f79 1ff8-1ff9 2070 2080 2092 2183 2189 2473 2487
249b 24ea 2c7a 2c90-2c91 2c9e-2c9f 2d31 2d41 2d54 3007 325a 32b5 32bf 3358 336c 33f3 33fd a4db a4f3 a74a-a74d
a7c0-a7c1 ab3d-ab3f ab74 ab8e abbb fb41 fba4-fbad fbec-fbed fc51-fc54 fc9b fca0 fca5 fccd fcd6-fcd9 fcde fce0
fce2 fce4 fce6 fce8 fcea fcef fcf1 fd31-fd32 fd93-fd94 fdf7 fe93-fe94 fee9-feec ff10 10292 102ab 10404 10423
1042c 104c2 104ea 10516 107a2 114d0 118a8 118b5 118b7 118c8 118d5 118d7 118e0 11de0 1cce4 1ccf0 1d6af 1d6b6
1d6b9-1d6ba 1d6c9 1d6d0 1d6d4 1d6dd 1d6e9 1d6f0 1d6f3-1d6f4 1d703 1d70a 1d70e 1d717 1d723 1d72a 1d72d-1d72e
1d73d 1d744 1d748 1d751 1d75d 1d764 1d767-1d768 1d777 1d77e 1d782 1d78b 1d797 1d79e 1d7a1-1d7a2 1d7b1 1d7b8
1d7bc 1d7c5 1d7ce 1d7d8 1d7e2 1d7ec 1d7f6 1df1b 1ee24 1ee64 1ee84 1f100-1f101 1f11e 1f13e 1f15e 1f17e 1f1f4
1fbf0 e0030 e004f e006f;
oe: 152-153 276 a7f9 ab62 107a3;
oo: d5f 221e a698-a699 a74e-a74f;
p: de fe 1a4-1a5 1bf 1f7 3a1 3c1 3f1 3f7-3f8 420 440 13e2 146d 1476-1477 1486 157f 1d18 1d29 1d3e 1d56 1d68
1d71 1d7d 1d88 1dee 1fe4-1fe5 1fec 209a 2374 2c63 2ca2-2ca3 2cce-2ccf a4d1 a750-a755 a7fc abb2 10295 1cce5
1d6b8 1d6d2 1d6e0 1d6f2 1d70c 1d71a 1d72c 1d746 1d754 1d766 1d780 1d78e 1d7a0 1d7ba 1d7c8 1f11f 1f13f 1f15f
1f17f 1f18a 1f1f5 e0050 e0070;
ppv: 1f14e;
pte: 3250;
q: 24a-24b 2a0 51a-51b 533 536 563 566 1d90 2d55 a756-a759 a7af a7f4 107a5 1cce6 1f120 1f140 1f160 1f180 1f1f6
e0051 e0071;
qe: 1f700;
r: 1a6 24c-24d 279-281 2b4-2b6 36c 403 413 433 44f 453 491 493 13a1 13b1 13d2 1587 1acd 1d19-1d1a 1d26 1d3f
1d63 1d72-1d73 1d89 1de2 2c64 2c79 2c84-2c85 a4e3 a782-a783 a7a6-a7a7 ab45-ab4c ab68 ab71 ab81 aba2 104b4
104dc 107a6-107aa 16f35 1cce7 1d216 1df08 1df15-1df16 1f121 1f12c 1f141 1f161 1f181 1f1f7 e0052 e0072;
rn: b5 19c 270-271 36b 39c 3bc 3fa-3fb 41c 4cd 57a 1223 13b7 15f0 16d6 1d0d 1d39 1d50 1d6f 1d86 1dac-1dad 1ddf
2098 2c6e 2c98 a4df a7fa a7fd a7ff ab3a ab51 102b0 10311 11700 118e3 1cce2 1d6b3 1d6cd 1d6ed 1d707 1d727 1d741
1d761 1d77b 1d79b 1d7b5 1f11c 1f13c 1f15c 1f17c 1f1f2 e004d e006d;
rn w: 43c 2c99 ab87;
rna: 3382;
rnb: 1f76b;
rnc: 1f16a;
rnd: 1f16b;
rnf: 338c;
rng: 338d;
rni rnl: 3395-3396;
rnii rnil: 33d5;
rnoi rnol: 33d6;
rnr: 1f16c;
rnrn: 339b;
rns: 33b2;
rnv: 33b6 1f14b;
rnw: 33bc;
s: df 1bc-1bd 23f 282 3b2 3d0 405 455 54f 57f d1f 13d5 13da 13f0 1d5d 1d66 1d74 1d8a 1db3 1de4-1de5 1e9c 1e9e
209b 2c7e a4e2 a731 a784-a785 a7a8-a7a9 a7b5 a7c5 a7c9-a7ca a7d6-a7d9 aba5 abaa 10296 10420 10448 107ba 118a1
118c1 16f3a 1cce8 1d6c3 1d6fd 1d737 1d771 1d7ab 1df1e 1f122 1f12a 1f142 1f162 1f182 1f1f8 e0053 e0073;
sd: 1f14c;
ss: 1f14d;
sss: 1f75c;
t: 166-167 1ab-1ae 236 23e 287-288 2a7 36d 3a4 3c4 422 442 4ac-4ad 10a0 13a2 13bf 1ace 1c84-1c85 1d1b 1d40
1d57 1d75 1db5 209c 22a4 27d9 2c66 2ca6-2ca7 a4d4-a4d5 a728-a729 a786-a787 a7b1 ab72 10297 102b1 10315
107ae-107af 118bc 16f0a 1cce9 1d6bb 1d6d5 1d6f5 1d70f 1d72f 1d749 1d769 1d783 1d7a3 1d7bd 1df09 1df0d 1f123
1f143 1f163 1f183 1f1f9 1f768 e0054 e0074;
tc: 2a8 107ab;
tf: a777;
ts: 2a6 107ac;
u: 244 28b 367 3b0 3c5 3cb 3cd 45f 54d 57d 1200 13cc 144c 1457-1458 1467 1d1c 1d41 1d58 1d64 1d7e 1d99
1db8-1db9 1df0 1df4 1f50-1f57 1f7a-1f7b 1fe0-1fe3 1fe6-1fe7 222a 22c3 a4f4 a79e-a79f a7b8-a7b9 a7be-a7bf ab4e
ab52 ab5f ab9c 104ce 104f6 118b8 118d8 16f42 1ccea 1d6d6 1d710 1d74a 1d784 1d7be 1f124 1f144 1f164 1f184 1f1fa
e0055 e0075;
ue: 1d6b;
uo: ab63;
v: 1b2 245 28c 36e 39b 3bd 41b 474-477 4c5 5d8 667 6f7 13d9 142f 1431 143a-143d 1d20 1d27 1d5b 1d65 1dba 2228
22c1 2c71 2c74 2c7d 2c97 2d37-2d38 a4e5-a4e6 a6ce a6df a75e-a75f aba9 fb38 1028d 104b0 104d8 1051d 107b0 11706
118a0 118c0 16f08 16f3d 1cceb 1d20d 1d6b2 1d6ce 1d6ec 1d708 1d726 1d742 1d760 1d77c 1d79a 1d7b6 1f125 1f145
1f165 1f185 1f1fb e0056 e0076;
vb: 1f76c;
vi vl: 2165;
vii vil vli vll: 2166;
viii viil vili vill vlii vlil vlli vlll: 2167;
vrn: 33de;
w: 26f 28d 428 448 460-461 47c-47d 4ce 51c-51d 531 561 13b3 13d4 18ed 1d21 1d42 1d5a 1df1 2c72-2c73 2cbc-2cbd
a4ea a761 a7c2-a7c3 ab69 ab83 aba4 114c5 1170a 1170e-1170f 118e6 118ef 1ccec 1f126 1f146 1f166 1f186 1f1fc
e0057 e0077;
wc: 1f14f;
wz: 1f12e;
x: d7 36f 3a7 3c7 425 445 4b2 1541 157d 166d-166e 16b7 1d61 1d6a 1d8d 2093 2573 292b-292c 2a2f 2cac-2cad 2d5d
a4eb a7b3 ab53 ab56-ab59 10290 102b4 10317 10322 10527 118ec 1cced 1d6be 1d6d8 1d6f8 1d712 1d732 1d74c 1d76c
1d786 1d7a6 1d7c0 1f127 1f147 1f167 1f187 1f1fd e0058 e0078;
xi xl: 216a;
xii xil xli xll: 216b;
y: 194 1b3-1b4 24e-24f 263 28e-28f 2e0 38e 393 3a5 3ab 3b3 3d2-3d4 40e 423 443 45e 490 492 4ae-4b1 4ee-4f3
10e7 13a9 13bd 14ae-14af 1ca7 1d5e 1d67 1d8c 1efe-1eff 1f59 1f5b 1f5d 1f5f 1fe8-1feb 213d-213e 2ca8-2ca9 a4ec
ab5a ab79 ab8d 102b2 107a0-107a1 107b2 118a4 118dc 16f43 1ccee 1d6aa 1d6bc 1d6c4 1d6e4 1d6f6 1d6fe 1d71e 1d730
1d738 1d758 1d76a 1d772 1d792 1d7a4 1d7ac 1df06 1f128 1f148 1f168 1f188 1f1fe e0059 e0079;
z: 1b5-1b6 224-225 240 290-291 396 3b6 13c3 1d22 1d76 1d8e 1dbb-1dbd 1de6 2c6b-2c6c 2c7f 2c8c-2c8d a4dc
a762-a763 a7c6 ab93 102f5 118a9 118c4 118c9 118e5 1ccef 1d6ad 1d6c7 1d6e7 1d701 1d721 1d73b 1d75b 1d775 1d795
1d7af 1f129 1f149 1f169 1f189 1f1ff e005a e007a
"""
_OPENING = """
3c 2c2 1438 1445 16b2 2039 226a 226e 22d6 22d8 2329 276c 276e 2770 27e8 2991 29fc 2cb4-2cb5 3008 fe3f fe64
ff1c 1d236 e003c
"""
_CLOSING = """
3e 2c3 1433 1441 203a 226b 226f 22d9 232a 276d 276f 2771 27e9 2992 29fd 2a20 2aa5 3009 fe40 fe65 ff1e 16f3f
1d237 e003e
"""
_SEPARATORS = """
2f 3a 2f8 589 5c3 703-704 903 a83 16ec 1735 1803 1809 2041 2044 205a 2215 2236 2571 27cb 29f4 29f6 29f8 2a74
2afb 2afd 2f03 31d3 a789 fe13 fe30 fe55 ff0f ff1a 11dd9 1d23a e002f e003a
"""
_UNSEEN = """
ad 34f 61c 115f-1160 17b4-17b5 180b-180f 200b-200f 202a-202e 2060-206f 3164 fe00-fe0f feff ffa0 fff0-fff8
1bca0-1bca3 1d173-1d17a e0000-e0fff
"""


def _signs(written: str) -> frozenset[str]:
    """Of numbers in hexadecimal, and of ranges of them."""
    ends = [[int(end, 16) for end in one.split("-")] for one in written.split()]
    return frozenset(chr(code) for first_last in ends for code in range(first_last[0], first_last[-1] + 1))


def _readings() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Rows of what is read, a colon, and the signs that are read so."""
    for row in _READINGS.split(";"):
        letters, _, signs = row.partition(":")
        yield from ((sign, tuple(letters.split())) for sign in _signs(signs))


READINGS = dict(_readings())
"""What a sign may be taken for: letters of ours, lower case, `m` as `rn`; not what decomposes to its letter (NFKD)."""
OPENING = _signs(_OPENING)
"""What is taken for the beginning of a tag."""
CLOSING = _signs(_CLOSING)
"""What is taken for its end."""
SEPARATORS = _signs(_SEPARATORS)
"""What is taken for a colon or a slash."""
UNSEEN = _signs(_UNSEEN)
"""What shows nothing by itself: fillers, selectors of variants, joiners, marks of direction, tags."""
